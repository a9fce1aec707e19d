"""Arrays of untrusted .npz files: no pickles, and no array of unknown size.

The declared sizes are checked before anything is allocated: a few megabytes may unpack to many
gigabytes.
"""

import contextlib
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from jaxrl.errors import UserError, first_line
from jaxrl.utils import host_memory


class Header(NamedTuple):
    """Shape and dtype of one array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@contextlib.contextmanager
def opened(file: Path) -> Iterator["Archive"]:
    """Open a file for reading.

    Raises:
      UserError: it is not a readable .npz file.
    """
    if not file.is_file():
        file.stat()  # no such file, or not allowed to look
        raise UserError(f"'{file}' cannot be read: it is not a regular file.")
    with contextlib.ExitStack() as stack:
        try:
            handle = stack.enter_context(file.open("rb"))
            if handle.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise UserError(f"'{file}' holds one array, not several by name: is it .npy?")
            archive = Archive(file, stack.enter_context(zipfile.ZipFile(handle)))
        except (UserError, PermissionError):
            raise
        except Exception as error:  # zipfile raises many kinds for invalid bytes
            raise UserError(
                f"'{file}' cannot be read: it is damaged, truncated, or not an .npz file "
                f"({first_line(error)}). Pickles are never read."
            ) from error
        yield archive


class Archive:
    """The arrays of an open file by name."""

    def __init__(self, file: Path, archive: zipfile.ZipFile):
        self.file = file
        self._archive = archive
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the order of the file."""
        return list(self._members)

    def header(self, name: str) -> Header:
        """Return the shape and dtype of an array without reading it."""
        with self._explained(name), self._archive.open(self._members[name]) as member:
            return _header(member, self._members[name].file_size)

    def read(self, name: str) -> np.ndarray:
        """Read an array that fits into memory."""
        host_memory.check_fits(f"'{self.file}': '{name}'", self.header(name).nbytes)
        with self._explained(name), self._archive.open(self._members[name]) as member:
            return npy.read_array(member, allow_pickle=False)

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # zipfile, zlib and NumPy raise many kinds
            text = "it is missing" if isinstance(error, KeyError) else first_line(error)
            raise UserError(
                f"'{self.file}': '{name}' cannot be read ({text}). Pickles are never read."
            ) from error


def _header(member: Any, size: int) -> Header:
    """Read the header of an array; raise ValueError unless it matches `size` bytes."""
    version = npy.read_magic(member)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of its format is unknown")
    shape, _, dtype = readers[version](member)
    header = Header(shape, dtype)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which only a pickle can")
    if any(n < 0 for n in shape) or member.tell() + header.nbytes != size:
        raise ValueError(f"it declares {header}, but has {size - member.tell():,} bytes")
    return header
