"""Untrusted .npz files: declared shapes and types are checked before data is read."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from jaxrl.errors import UserError
from jaxrl.utils import host_memory, npz


def header(shape, descr="<f4"):
    """Return the .npy header of an array, without its data."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def write(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


def test_array_round_trip(tmp_path):
    arrays = {
        "matrix": np.arange(6.0).reshape(2, 3),
        "text": np.array("words"),
        "empty": np.zeros((0, 4), np.int8),
        "a/b": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    with npz.opened(tmp_path / "x.npz") as archive:
        assert archive.names == list(arrays)
        for name, array in arrays.items():
            assert archive.header(name) == (array.shape, array.dtype)
            assert archive.header(name).nbytes == array.nbytes
            np.testing.assert_array_equal(archive.read(name), array)


@pytest.mark.parametrize(
    "member, message",
    [
        (header((2**40, 2**40)), r"declares float32\[\d+, \d+\], but has 0 bytes"),
        (header((-1, 4)), "declares"),
        (header((3,)) + bytes(11), r"declares float32\[3\], but has 11 bytes"),
        (header((3,)) + bytes(13), "but has 13 bytes"),
        (header((1,), "|O") + pickle.dumps("code"), "Python objects"),
        (pickle.dumps("code"), "Pickles are never read"),
        (b"", "EOF"),
        (b"\x93NUMPY\x09\x00", r"version \(9, 0\)"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "large"),
    ],
)
def test_inconsistent_array_headers_are_refused(tmp_path, member, message):
    write(tmp_path / "x.npz", bad=member)
    with npz.opened(tmp_path / "x.npz") as archive:
        for use in (archive.header, archive.read):
            with pytest.raises(UserError, match=f"x.npz': 'bad' cannot be read.*{message}"):
                use("bad")
        with pytest.raises(UserError, match="'other' cannot be read .it is missing"):
            archive.read("other")


def test_arrays_larger_than_memory_are_not_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", zeros=np.zeros(2**22, np.uint8))
    assert (tmp_path / "x.npz").stat().st_size < 2**14
    monkeypatch.setattr(host_memory, "available", lambda: 2**23 - 1)
    monkeypatch.setattr(npy, "read_array", None)
    message = "x.npz': 'zeros' is 0.0 GiB, too large to be read"
    with npz.opened(tmp_path / "x.npz") as archive, pytest.raises(UserError, match=message):
        archive.read("zeros")


def test_files_that_are_not_npz_are_refused(tmp_path):
    np.save(tmp_path / "one.npz.npy", np.zeros(3))
    (tmp_path / "one.npz.npy").rename(tmp_path / "one.npz")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps("code"))
    os.mkfifo(tmp_path / "pipe.npz")
    for name, message in (
        ("one", "holds one array"),
        ("pickle", "damaged, truncated, or not an .npz file"),
        ("pipe", "not a regular file"),
    ):
        with pytest.raises(UserError, match=message), npz.opened(tmp_path / f"{name}.npz"):
            pass


def test_damaged_bytes_raise_only_user_errors(tmp_path):
    """Invert every third byte of a small file in turn: it is read, or a UserError is raised."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.arange(5), b=np.array("text"))
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            with npz.opened(path) as archive:
                for name in archive.names:
                    archive.read(name)
        except UserError:
            refused += 1
    assert refused > len(whole) // 6


def test_available_memory_is_detected():
    assert 2**20 < host_memory.available() < 2**50
    host_memory.check_fits("x", 0)
    with pytest.raises(UserError, match=r"x is 1,024\.0 GiB, too large"):
        host_memory.check_fits("x", 2**40)
