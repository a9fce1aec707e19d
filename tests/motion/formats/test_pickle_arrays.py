"""Pickles are read without executing them: arrays are loaded, all else is rejected."""

import gzip
import io
import os
import pickle
import struct
import zlib
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion.formats import pickle_arrays
from tests.helpers import pickle_files as craft

ARRAYS = {
    "plain": np.arange(12.0).reshape(3, 4),
    "single": np.float32([[1.5, -2.5]]),
    "whole numbers": np.arange(-3, 3, dtype=np.int64),
    "bytes": np.arange(5, dtype=np.uint8),
    "truths": np.array([True, False, True]),
    "no axis": np.array(30),
    "empty": np.zeros((0, 3)),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big-endian": np.arange(4, dtype=">f8"),
    "text": np.array(["male", "neutral"]),
}


def _load(tmp_path, data, name="motion.pkl"):
    path = tmp_path / name
    path.write_bytes(data)
    return pickle_arrays.load(path)


def _assert_equal(found, expected):
    assert set(found) == set(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)
        assert found[key].dtype == array.dtype.newbyteorder("=")
        assert found[key].shape == array.shape


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_arrays_of_every_protocol(tmp_path, protocol):
    _assert_equal(_load(tmp_path, pickle.dumps(ARRAYS, protocol)), ARRAYS)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("compressed", [True, False])
def test_joblib_dumps(tmp_path, protocol, aligned, compressed):
    """Arrays lie between the opcodes; files from before joblib 1.2 are not aligned."""
    again = {**ARRAYS, "once more": ARRAYS["plain"]}
    data = craft.joblib_dump(again, protocol, aligned, compressed)
    _assert_equal(_load(tmp_path, data), again)


@pytest.mark.parametrize("compress", [0, ("zlib", 3), ("gzip", 3)])
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_joblib_itself(tmp_path, compress, protocol):
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "motion.pkl"
    joblib.dump({"clip": ARRAYS}, path, compress=compress, protocol=protocol)
    _assert_equal(pickle_arrays.load(path)["clip"], ARRAYS)


def test_gzip(tmp_path):
    _assert_equal(_load(tmp_path, gzip.compress(pickle.dumps(ARRAYS))), ARRAYS)


def test_values_other_than_arrays(tmp_path):
    shared = [1, 2]
    value = {
        "number": np.float64(29.97),
        "name": np.str_("neutral"),
        "ordered": OrderedDict(b=1, a=(None, True, b"\x00\xff")),
        "twice": [shared, shared],
    }
    for protocol in (2, 5):
        found = _load(tmp_path, pickle.dumps(value, protocol))
        assert found["number"] == 29.97
        assert found["name"] == "neutral"
        assert list(found["ordered"].items()) == [("b", 1), ("a", (None, True, b"\x00\xff"))]
        assert found["twice"] == [[1, 2], [1, 2]]


def test_object_npy(tmp_path):
    np.save(tmp_path / "m.npy", OrderedDict(arr=ARRAYS["single"], n=3), allow_pickle=True)
    found = pickle_arrays.load(tmp_path / "m.npy")
    assert found.shape == ()
    assert found.item()["n"] == 3
    np.testing.assert_array_equal(found.item()["arr"], ARRAYS["single"])
    np.save(tmp_path / "numbers.npy", np.zeros(3))
    with pytest.raises(UserError, match="array of float64, not a pickled motion"):
        pickle_arrays.load(tmp_path / "numbers.npy")


NUMBERS = np.arange(6.0).reshape(2, 3)
VIEWS = {
    "whole": (craft.Tensor(NUMBERS), NUMBERS),
    "transposed": (craft.Tensor(NUMBERS, size=(3, 2), stride=(1, 3)), NUMBERS.T),
    "part": (craft.Tensor(NUMBERS, offset=3, size=(3,), stride=(1,)), NUMBERS[1]),
    "single": (craft.Tensor(np.float32(NUMBERS), "Float"), np.float32(NUMBERS)),
    "whole numbers": (craft.Tensor(np.arange(4), "Long"), np.arange(4)),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("protocol", [2, 4])
def test_tensors(tmp_path, name, protocol):
    tensor, expected = VIEWS[name]
    with craft.pretended_torch():
        data = craft.joblib_dump({"t": tensor}, protocol)
    _assert_equal(_load(tmp_path, data), {"t": expected})


def test_pytorch_itself(tmp_path):
    torch = pytest.importorskip("torch")
    whole = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    value = {"whole": whole, "part": whole[1:3].T, "single": whole.float(), "long": whole.long()}
    found = _load(tmp_path, craft.joblib_dump(value))
    _assert_equal(found, {key: tensor.numpy() for key, tensor in value.items()})


@pytest.mark.parametrize(
    "tensor, complaint",
    [
        (craft.Tensor(NUMBERS, size=(7,), stride=(1,)), "larger than its storage"),
        (craft.Tensor(NUMBERS, size=(2, 10**9), stride=(0, 0)), "larger than its storage"),
        (craft.Tensor(NUMBERS, offset=4, size=(3,), stride=(1,)), "IndexError"),
        (craft.Tensor(NUMBERS, offset=-1, size=(3,), stride=(1,)), "ValueError"),
        (craft.Tensor(NUMBERS, "BFloat16"), "'torch.BFloat16Storage'"),
        (craft.Tensor(np.float32(NUMBERS), "Double"), "24 bytes for float64"),
    ],
)
def test_tensors_with_inconsistent_metadata_are_rejected(tmp_path, tensor, complaint):
    with craft.pretended_torch():
        data = pickle.dumps({"t": tensor}, 2)
    with pytest.raises(UserError, match=complaint) as error:
        _load(tmp_path, data)
    assert "motion.pkl" in str(error.value)


class Calls:
    """Pickled as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def _forbidden(folder):
    """Return a file that must not be created, and pickles that would create it."""
    mark = folder / "ran"
    make = f"open({str(mark)!r}, 'w').close()"
    return mark, {
        "os.system": Calls(os.system, f"touch {mark}"),
        "eval": Calls(eval, make),
        "exec": Calls(exec, make),
        "open": Calls(open, str(mark), "w"),
        "in a dict": {"clip": {"fps": 30, "pose_aa": Calls(os.system, f"touch {mark}")}},
        "as a key": {(1, Calls(eval, make)): 2},
        "as an argument": Calls(np.dtype, Calls(eval, make)),
        "getattr": Calls(getattr, Calls(__import__, "os"), "system"),
        "numpy.load": Calls(np.load, "x.npy", None, True),
        "in an object array": np.array([Calls(eval, make)], object),
    }


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", _forbidden(Path())[1])
def test_no_code_is_executed(tmp_path, name, protocol):
    mark, attacks = _forbidden(tmp_path)
    data = pickle.dumps(attacks[name], protocol)
    for packed in (data, zlib.compress(data)):
        with pytest.raises(UserError, match=r"motion.pkl' refers to '[\w.]+', .*: refused"):
            _load(tmp_path, packed)
    assert not mark.exists()


def test_the_attacks_are_real(tmp_path):
    """With pickle itself they do run; otherwise the test above would prove nothing."""
    mark, attacks = _forbidden(tmp_path)
    for name in ("os.system", "eval", "as a key", "in an object array"):
        pickle.loads(pickle.dumps(attacks[name]))
        assert mark.exists()
        mark.unlink()


def test_no_code_is_executed_within_a_tensor(tmp_path):
    """PyTorch would unpickle a storage's bytes by itself."""
    mark, attacks = _forbidden(tmp_path)

    class Evil(craft.Storage):
        def content(self):
            return pickle.dumps(attacks["os.system"])

    tensor = craft.Tensor(NUMBERS)
    tensor.storage = Evil(NUMBERS, "Double")
    with craft.pretended_torch():
        data = pickle.dumps(tensor, 2)
    with pytest.raises(UserError, match=r"motion.pkl' refers to '(posix|nt).system'"):
        _load(tmp_path, data)
    assert not mark.exists()


def test_no_module_is_imported(tmp_path):
    """Importing a module runs it."""
    (tmp_path / "innocent_looking.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(UserError, match="'innocent_looking.thing'"),
    ):
        patch.syspath_prepend(tmp_path)
        _load(tmp_path, b"cinnocent_looking\nthing\n.")
    assert not (tmp_path / "ran").exists()


# Written by hand: programs that no pickler would write. `c` names, `(`...`t` is a tuple, `R`
# calls, `b` sets a state, `0` drops, `.` ends.
DTYPE = b"cnumpy\ndtype\n"
HAND_WRITTEN = {
    "a name alone": DTYPE + b".",
    "a call of a result": DTYPE + b"(Vf8\ntR(tR.",
    "state of a name": DTYPE + b"}Vname\nVbuiltins.eval\nsb.",
    "state of a dict": b"ccollections\nOrderedDict\n}Vkeys\nVx\nsb.",
    "an item of a result": DTYPE + b"(Vf8\ntRVkey\nVvalue\ns.",
    "an unregistered extension": b"\x80\x02\x82\x01.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "itself as its state": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)Rq\x00h\x00b.",
    "an unknown encoding": b"c_codecs\nencode\n(Vxyz\nVrot13\ntR.",
    "a set": b"\x80\x04\x8f.",
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_invalid_pickle_programs_are_rejected(tmp_path, name):
    before = dict(vars(pickle_arrays.PickledObject))
    with pytest.raises(UserError, match=r"motion.pkl' cannot be read: it is damaged"):
        _load(tmp_path, HAND_WRITTEN[name])
    assert dict(vars(pickle_arrays.PickledObject)) == before


def test_shared_references_are_built_once(tmp_path):
    """Forty lists, each twice the one before: a tree of 2^40 leaves in 300 bytes."""
    data = b"\x80\x02]" + b"q\x00" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(40))
    found = _load(tmp_path, data + b".")
    assert len(found) == 2
    assert found[0] is found[1]


@pytest.mark.parametrize(
    "code, shape, data",
    [
        ("V8", (1,), b"12345678"),  # raw memory
        ("f8,f8", (1,), b"1234567812345678"),
        ("O8", (1,), b"12345678"),  # addresses of objects
        ("f8", (2,), b"12345678"),  # less data than declared
        ("f8", (1,), b"1234567812345678"),  # more
        ("f8", (-1,), b"12345678"),
        ("f8", (True,), b"12345678"),
        ("f8", "no shape", b"12345678"),
        ("f8", (2**62, 4), b""),
        (8, (1,), b"12345678"),
    ],
)
def test_arrays_with_inconsistent_metadata_are_rejected(tmp_path, code, shape, data):
    class Array:
        def __reduce__(self):
            make = np.array([0.0]).__reduce__()[0]
            return make, (np.ndarray, (0,), b"b"), (1, shape, Dtype(), False, data)

    class Dtype:
        def __reduce__(self):
            return np.dtype, (code, False, True), (3, "<", None, None, None, -1, -1, 0)

    with pytest.raises(UserError, match="cannot be read"):
        _load(tmp_path, pickle.dumps(Array()))


@pytest.mark.parametrize("kind", ["pickle", "joblib", "zlib", "npy"])
def test_truncated_files_are_rejected(tmp_path, kind):
    value = {"clip": {"poses": NUMBERS, "fps": 30}}
    npy = io.BytesIO()
    np.save(npy, value, allow_pickle=True)
    data = {
        "pickle": pickle.dumps(value),
        "joblib": craft.joblib_dump(value, compressed=False),
        "zlib": craft.joblib_dump(value),
        "npy": npy.getvalue(),
    }[kind]
    for length in range(len(data)):
        with pytest.raises(UserError, match="motion.pkl"):
            _load(tmp_path, data[:length])


def test_corrupt_bytes_raise_only_user_errors(tmp_path):
    """Whatever bytes change, the result is a value or one readable error."""
    rng = np.random.default_rng(0)
    data = craft.joblib_dump({"clip": {"poses": NUMBERS, "fps": 30}}, compressed=False)
    for _ in range(500):
        broken = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            broken[place] = rng.integers(0, 256)
        try:
            _load(tmp_path, bytes(broken))
        except UserError as error:
            assert "motion.pkl" in str(error)


def test_decompressed_size_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(pickle_arrays, "ALWAYS_FINE", 1000)
    data = zlib.compress(pickle.dumps(bytes(10**6)))
    with pytest.raises(UserError, match="unpacks to more than"):
        _load(tmp_path, data)


def test_other_files_are_rejected(tmp_path):
    for data in (
        b"",
        b"not a pickle",
        b"\x89HDF\r\n\x1a\n",
        b"PK\x03\x04",
        struct.pack("<9d", *range(9)),
    ):
        with pytest.raises(UserError, match="damaged, cut short, or no pickle"):
            _load(tmp_path, data)
    with pytest.raises(UserError, match="absent.pkl' cannot be read: No such file"):
        pickle_arrays.load(tmp_path / "absent.pkl")
