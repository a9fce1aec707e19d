"""Opening .npz files of arrays without ever reading a pickle."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from jaxrl.errors import UserError, nearest

_DAMAGED = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)


@contextlib.contextmanager
def opened(file: Path) -> Iterator["Arrays"]:
    """Open a file for reading."""
    with file.open("rb") as handle:  # of a damaged file, NumPy would leave it open
        try:
            arrays = np.load(handle, allow_pickle=False)
        except _DAMAGED as error:
            raise UserError(
                f"'{file}' cannot be read: it is damaged, cut short, or no .npz file ({error}). "
                "Pickles are never read."
            ) from error
        if isinstance(arrays, np.ndarray):
            raise UserError(f"'{file}' holds one array, not several by name: is it a .npy file?")
        yield Arrays(file, arrays)


class Arrays:
    """The arrays of a file by name; whatever is missing or no number is reported with the file."""

    def __init__(self, file: Path, arrays: Mapping[str, np.ndarray]):
        self.file = file
        self.names = list(arrays)
        self._arrays = arrays

    def raw(self, name: str) -> np.ndarray:
        """Return an array as it is stored."""
        if name not in self.names:
            near = nearest(name, self.names)
            raise UserError(f"'{self.file}': '{name}' is missing.{near}")
        try:
            return self._arrays[name]
        except _DAMAGED as error:
            raise UserError(
                f"'{self.file}': '{name}' cannot be read ({error}). Pickles are never read."
            ) from error

    def numbers(self, name: str, *shape: int | None) -> np.ndarray:
        """Return numbers of a shape, of which None may be anything."""
        values = self.raw(name)
        if values.dtype.kind not in "fiub":
            raise UserError(f"'{self.file}': '{name}' holds {values.dtype}, not numbers.")
        fits = len(shape) == values.ndim and all(
            n is None or n == m for n, m in zip(shape, values.shape, strict=True)
        )
        if not fits:
            wanted = "[" + ", ".join("F" if n is None else str(n) for n in shape) + "]"
            raise UserError(
                f"'{self.file}': '{name}' has the shape {list(values.shape)}, not {wanted}."
            )
        return values.astype(np.float64)

    def number(self, name: str) -> float:
        """Return one number."""
        shape = self.raw(name).shape
        return float(self.numbers(name, *(1 for _ in shape)).reshape(()))

    def texts(self, name: str) -> list[str]:
        """Return a list of words."""
        return [str(word) for word in np.atleast_1d(self.raw(name))]

    def columns(self, named: dict[str, tuple[int | None, ...]]) -> dict[str, np.ndarray]:
        """Return several arrays by name, all of which must have the same number of frames."""
        found = {name: self.numbers(name, *shape) for name, shape in named.items()}
        first = next(iter(found))
        for name, values in found.items():
            if len(values) != len(found[first]):
                raise UserError(
                    f"'{self.file}': '{name}' has {len(values)} frames, "
                    f"but '{first}' has {len(found[first])}."
                )
        return found
