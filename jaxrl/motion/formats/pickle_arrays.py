"""Plain values and NumPy arrays from pickles, joblib dumps and object `.npy` files.

Arrays of NumPy, joblib and PyTorch are rebuilt here from their pickled parts, so neither joblib nor
PyTorch is needed, and no function that a file names is ever called.
"""

import io
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.errors import UserError
from jaxrl.motion.formats import safe_unpickler
from jaxrl.motion.formats.safe_unpickler import PickledObject

ZLIB_OR_GZIP = 47  # zlib's wbits for "either, by its header"
PACKED = (b"\x78", b"\x1f\x8b")  # their magic bytes
# No motion compresses better; a small file that expands without end is an attack.
MOST_GROWTH = 200
ALWAYS_FINE = 1 << 28  # bytes


def load(file: Path) -> Any:
    """Read a pickle, a joblib dump (plain or compressed), or an object array in a `.npy`."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"'{file}' cannot be read: {error.strerror}.") from error
    try:
        stream = io.BytesIO(_unpacked(data))
        if data.startswith(np.lib.format.MAGIC_PREFIX):
            _skip_header(stream)
        return _plain(safe_unpickler.load(file, stream, BUILDERS, _joblib_bytes), {})
    except UserError:
        raise
    # Damaged files make the unpickler fail in many ways, all of which mean the same to the user.
    except Exception as error:
        raise UserError(
            f"'{file}' cannot be read: it is damaged, cut short, or no pickle "
            f"({type(error).__name__}: {str(error)[:120]})."
        ) from error


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(PACKED):
        return data
    limit = max(MOST_GROWTH * len(data), ALWAYS_FINE)
    unpacking = zlib.decompressobj(ZLIB_OR_GZIP)
    whole = unpacking.decompress(data, limit)
    if len(whole) == limit:
        raise ValueError(f"it unpacks to more than {limit} bytes")
    if not unpacking.eof:
        raise EOFError("the compressed data ends too early")
    return whole


def _skip_header(stream: io.BytesIO) -> None:
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    _, _, dtype = read[version](stream)
    if dtype != np.dtype(object):
        raise ValueError(f"it holds an array of {dtype}, not a pickled motion")


def _plain(thing: Any, seen: dict[int, Any]) -> Any:
    """Replace the pickled objects in a tree; shared ones are built once and stay shared."""
    if thing is None or isinstance(thing, bool | int | float | str | bytes | bytearray):
        return thing
    if id(thing) not in seen:
        seen[id(thing)] = ...  # found again before it is built, it contains itself
        if isinstance(thing, dict):
            built = {_plain(k, seen): _plain(v, seen) for k, v in thing.items()}
        elif isinstance(thing, list | tuple):
            built = type(thing)(_plain(item, seen) for item in thing)
        elif isinstance(thing, PickledObject):
            built = BUILDERS[thing.name](thing)
            if isinstance(built, np.ndarray) and built.dtype.hasobject:
                built = _plain_objects(built, seen)
        else:
            raise ValueError(f"it holds a {type(thing).__name__}")
        seen[id(thing)] = built
    if seen[id(thing)] is ...:
        raise ValueError("it contains itself")
    return seen[id(thing)]


def _plain_objects(array: np.ndarray, seen: dict[int, Any]) -> np.ndarray:
    plain = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        plain[place] = _plain(array[place], seen)
    return plain


def _bytes(thing: Any) -> bytes:
    """Return data however the pickle's protocol wrote it."""
    if isinstance(thing, PickledObject):
        thing = BUILDERS[thing.name](thing)
    if isinstance(thing, str):
        return thing.encode("latin1")
    if not isinstance(thing, bytes | bytearray):
        raise TypeError(f"data is a {type(thing).__name__}, not bytes")
    return bytes(thing)


def _encoded(made: PickledObject) -> bytes:
    """Bytes as protocol 2 writes them: text to be encoded."""
    text, encoding = made.arguments
    if encoding != "latin1":
        raise ValueError(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


def _empty(made: PickledObject) -> bytes:
    if made.arguments:
        raise ValueError("bytes made of something")
    return b""


def _dtype(made: Any) -> np.dtype:
    if not (isinstance(made, PickledObject) and made.name == "numpy.dtype"):
        raise TypeError("an array's type is no dtype")
    code = made.arguments[0]
    if not re.fullmatch(r"[fiub][1248]|O8?|[US]\d{1,4}", code):
        raise ValueError(f"an array of {str(code)[:40]!r}")
    order = made.state[1] if made.state else "|"
    return np.dtype(code).newbyteorder(order)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array's shape is not made of numbers")
    return shape


def _array(dtype: np.dtype, shape: tuple[int, ...], order: str, data: bytes) -> np.ndarray:
    """Return an array of exactly these bytes, in the machine's own byte order."""
    if dtype.hasobject:
        raise ValueError("objects where numbers should be")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise EOFError(f"{len(data)} bytes for {dtype}{list(shape)}")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _reconstructed(made: PickledObject) -> np.ndarray:
    """An array as NumPy pickles it up to protocol 4."""
    _, shape, dtype, fortran, data = made.state
    shape, dtype = _shape(shape), _dtype(dtype)
    if not dtype.hasobject:
        return _array(dtype, shape, "F" if fortran else "C", _bytes(data))
    if not isinstance(data, list) or len(data) != math.prod(shape):
        raise ValueError("an array of objects without its objects")
    array = np.empty(len(data), object)
    for i, item in enumerate(data):
        array[i] = item
    return array.reshape(shape, order="F" if fortran else "C")


def _from_buffer(made: PickledObject) -> np.ndarray:
    """An array as NumPy pickles it from protocol 5 on."""
    data, dtype, shape, order = made.arguments
    return _array(_dtype(dtype), _shape(shape), order, _bytes(data))


def _scalar(made: PickledObject) -> Any:
    dtype, data = made.arguments
    return _array(_dtype(dtype), (), "C", _bytes(data)).item()


def _joblib_bytes(stream: io.BytesIO, made: PickledObject) -> bytes | None:
    """Take an array's bytes, which joblib writes right behind the array's description."""
    if made.name != JOBLIB:
        return None
    if made.state.get("numpy_array_alignment_bytes") is not None:
        stream.read(stream.read(1)[0])
    size = math.prod(_shape(made.state["shape"])) * _dtype(made.state["dtype"]).itemsize
    return stream.read(size)


def _joblib_array(made: PickledObject) -> np.ndarray:
    state = made.state
    return _array(_dtype(state["dtype"]), _shape(state["shape"]), state["order"], made.raw)


def _tensor(made: PickledObject) -> np.ndarray:
    """A PyTorch tensor: a view into a storage that travels as a file within the file."""
    storage, offset, size, stride = made.arguments[:4]
    data = BUILDERS[STORAGE](storage)
    size, stride, (offset,) = _shape(size), _shape(stride), _shape((offset,))
    if len(size) != len(stride) or math.prod(size) > data.size:
        raise ValueError("a tensor larger than its storage")
    index = np.full(size, offset)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        index += (np.arange(n) * step).reshape([-1 if a == axis else 1 for a in range(len(size))])
    return data[index]


def _storage(made: Any) -> np.ndarray:
    """PyTorch's format of before 2020: four pickles, the storages' names, count and numbers."""
    if not (isinstance(made, PickledObject) and made.name == STORAGE):
        raise TypeError("a tensor without a storage")
    stream = io.BytesIO(_bytes(made.arguments[0]))
    parts = [safe_unpickler.load(made.file, stream, STORAGES) for _ in range(5)]
    _, _, about, identity, _ = parts
    kind, number_class, _, _, count = identity[:5]
    if kind != "storage" or not about["little_endian"] or number_class.name not in STORAGES:
        raise ValueError("a storage of an unknown kind")
    if int.from_bytes(stream.read(8), "little") != count:
        raise ValueError("a storage of another length than it says")
    dtype = np.dtype(STORAGES[number_class.name])
    return _array(dtype, (count,), "C", stream.read(count * dtype.itemsize))


JOBLIB = "joblib.numpy_pickle.NumpyArrayWrapper"
STORAGE = "torch.storage._load_from_bytes"
STORAGES = {
    f"{module}.{kind}Storage": code
    for module in ("torch", "torch.cuda")
    for kind, code in {"Double": "<f8", "Float": "<f4", "Long": "<i8", "Int": "<i4"}.items()
}


def _no_value(made: PickledObject) -> Any:
    raise ValueError(f"{made.name} where a value should be")


# Every name that a file may refer to, and what builds its value.
BUILDERS: dict[str, Callable[[PickledObject], Any]] = {
    "numpy.dtype": _no_value,
    "numpy.ndarray": _no_value,
    **{
        f"numpy.{core}.{name}": build
        for core in ("core", "_core")
        for name, build in {
            "multiarray._reconstruct": _reconstructed,
            "multiarray.scalar": _scalar,
            "numeric._frombuffer": _from_buffer,
        }.items()
    },
    "_codecs.encode": _encoded,
    "builtins.bytes": _empty,
    "__builtin__.bytes": _empty,
    JOBLIB: _joblib_array,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    STORAGE: _storage,
}
