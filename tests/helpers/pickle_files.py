"""Write motion files in the formats of joblib and PyTorch, without these packages."""

import contextlib
import io
import pickle
import sys
import types
import zlib
from collections import OrderedDict
from unittest import mock

import numpy as np


@contextlib.contextmanager
def pretended(**modules):
    """Temporarily add modules (__ stands for a dot in names) whose members pickles can name."""
    made = {}
    for path, members in modules.items():
        name = path.replace("__", ".")
        for depth in range(1, name.count(".") + 2):
            part = ".".join(name.split(".")[:depth])
            made.setdefault(part, types.ModuleType(part))
        for member, value in members.items():
            value.__module__, value.__qualname__, value.__name__ = name, member, member
            setattr(made[name], member, value)
    with mock.patch.dict(sys.modules, made):
        yield


class _Wrapper:
    """Stands for an array in joblib's pickles."""


class _JoblibPickler(pickle._Pickler):
    def __init__(self, file, protocol, aligned):
        super().__init__(file, protocol)
        self.out, self.aligned = file, aligned

    def save(self, obj, save_persistent_id=True):
        if type(obj) is not np.ndarray:
            return super().save(obj, save_persistent_id)
        wrapper = _Wrapper()
        fortran = obj.flags.f_contiguous and not obj.flags.c_contiguous
        wrapper.__dict__ |= {"subclass": np.ndarray, "shape": obj.shape, "dtype": obj.dtype}
        wrapper.__dict__ |= {"order": "F" if fortran else "C", "allow_mmap": False}
        if self.aligned:
            wrapper.numpy_array_alignment_bytes = 16
        super().save(wrapper)
        if self.proto >= 4:
            self.framer.commit_frame(force=True)
        if self.aligned:
            padding = 16 - (self.out.tell() + 1) % 16
            self.out.write(bytes([padding]) + b"\xff" * padding)
        self.out.write(obj.tobytes("F" if fortran else "C"))


def joblib_dump(thing, protocol=3, aligned=True, compressed=True):
    """Return the bytes of a joblib dump."""
    out = io.BytesIO()
    with pretended(joblib__numpy_pickle={"NumpyArrayWrapper": _Wrapper}):
        _JoblibPickler(out, protocol, aligned).dump(thing)
    return zlib.compress(out.getvalue()) if compressed else out.getvalue()


class Tensor:
    """Pickled like a PyTorch tensor: a view into the bytes of a storage."""

    def __init__(self, array, kind="Double", offset=0, size=None, stride=None):
        self.storage = Storage(array.ravel(), kind)
        contiguous = tuple(s // array.itemsize for s in array.strides)
        self.view = (offset, size or array.shape, stride or contiguous)

    def __reduce__(self):
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (self.storage, *self.view, False, OrderedDict())


class Storage:
    def __init__(self, numbers, kind):
        self.numbers, self.kind = numbers, kind

    def __reduce__(self):
        return sys.modules["torch.storage"]._load_from_bytes, (self.content(),)

    def content(self):
        out = io.BytesIO()
        about = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
        for part in (0x1950A86A20F9469CFC6C, 1001, about):
            pickle.dump(part, out, protocol=2)
        kind = getattr(sys.modules["torch"], f"{self.kind}Storage")

        class WithIdentity(pickle.Pickler):
            def persistent_id(self, obj):
                return obj if isinstance(obj, tuple) else None

        WithIdentity(out, 2).dump(("storage", kind, "94", "cpu", len(self.numbers), None))
        pickle.dump(["94"], out, protocol=2)
        out.write(len(self.numbers).to_bytes(8, "little") + self.numbers.tobytes())
        return out.getvalue()


@contextlib.contextmanager
def pretended_torch():
    def rebuild():
        pass

    def load():
        pass

    kinds = {f"{k}Storage": type(k, (), {}) for k in ("Double", "Float", "Long", "Int", "BFloat16")}
    with pretended(
        torch=kinds,
        torch___utils={"_rebuild_tensor_v2": rebuild},
        torch__storage={"_load_from_bytes": load},
    ):
        yield
