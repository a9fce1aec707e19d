"""Opening .npz files of arrays without ever reading a pickle."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jaxrl.errors import UserError, nearest
from jaxrl.utils import npz
from jaxrl.utils.formatting import plural


@contextlib.contextmanager
def opened(file: Path) -> Iterator["Arrays"]:
    """Open a file for reading."""
    with npz.opened(file) as archive:
        yield Arrays(archive)


class Arrays:
    """The arrays of a file by name; whatever is missing or no number is reported with the file."""

    def __init__(self, archive: npz.Archive):
        self.file = archive.file
        self.names = archive.names
        self._archive = archive

    def header(self, name: str) -> npz.Header:
        """Return what the file says of an array."""
        if name not in self.names:
            near = nearest(name, self.names)
            raise UserError(f"'{self.file}': '{name}' is missing.{near}")
        return self._archive.header(name)

    def raw(self, name: str) -> np.ndarray:
        """Return an array as it is stored."""
        self.header(name)  # or it is missing
        return self._archive.read(name)

    def numbers(self, name: str, *shape: int | None) -> np.ndarray:
        """Return numbers of a shape, of which None may be anything."""
        values = self.header(name)
        if values.dtype.kind not in "fiub":
            raise UserError(f"'{self.file}': '{name}' holds {values.dtype}, not numbers.")
        fits = len(shape) == len(values.shape) and all(
            n is None or n == m for n, m in zip(shape, values.shape, strict=True)
        )
        if not fits:
            wanted = "[" + ", ".join("F" if n is None else str(n) for n in shape) + "]"
            raise UserError(
                f"'{self.file}': '{name}' has the shape {list(values.shape)}, not {wanted}."
            )
        return self.raw(name).astype(np.float64)

    def number(self, name: str) -> float:
        """Return one number."""
        shape = self.header(name).shape
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
                    f"'{self.file}': '{name}' has {plural(len(values), 'frame')}, "
                    f"but '{first}' has {len(found[first])}."
                )
        return found
