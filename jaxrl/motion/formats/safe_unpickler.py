"""Read a pickle without running anything in it.

A pickle is a program that may import and call anything. Here every name it refers to becomes a
`PickledObject` that only stores its arguments; names that no motion file needs are refused, and
nothing is ever imported. `pickle_arrays` turns pickled objects into arrays.
"""

import io
import pickle
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from jaxrl.errors import UserError


class PickledObject:
    """The arguments and state of an object in a pickle, whose class is not imported."""

    name = ""  # set with the file in a subclass for each name
    file = Path()
    arguments: tuple = ()
    state: Any = None
    raw: Any = None  # bytes that follow in the file, outside of the pickle

    def __new__(cls, *arguments: Any) -> "PickledObject":
        """Store the arguments, whether called or created by `__new__`."""
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unbuffered:
    """The methods of a file that an unpickler needs.

    Without `peek` it reads no further than it must, so that the bytes between the opcodes of a
    joblib file can still be read.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        self.read, self.readinto, self.readline = stream.read, stream.readinto, stream.readline


# (the file's stream, an object that just got its state) -> the bytes that follow, or None
ReadRaw = Callable[[io.BytesIO, PickledObject], Any]


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: Path, stream: io.BytesIO, allowed: Collection[str], read_raw: ReadRaw
    ) -> None:
        # Text of Python 2 may be bytes; latin1 preserves them.
        super().__init__(_Unbuffered(stream), encoding="latin1")
        self.file, self.allowed = file, allowed
        self.read_raw = lambda made: read_raw(stream, made)

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full == "collections.OrderedDict":
            return dict
        if full not in self.allowed:
            raise UserError(
                f"'{self.file}' refers to {full[:100]!r}, which no motion needs: refused, and "
                "nothing in the file was run. Do not open it with other programs unless you trust "
                "its source."
            )
        read_raw = self.read_raw

        def set_state(self: PickledObject, state: Any) -> None:
            self.state = state
            self.raw = read_raw(self)

        # A new class each time, because a pickle may write into it.
        return type(
            name, (PickledObject,), {"name": full, "file": self.file, "__setstate__": set_state}
        )

    def persistent_load(self, pid: Any) -> Any:
        return pid


def load(
    file: Path,
    stream: io.BytesIO,
    allowed: Collection[str],
    read_raw: ReadRaw = lambda stream, made: None,
) -> Any:
    """Read one pickle: plain values, and pickled objects for the allowed names."""
    return _Unpickler(file, stream, allowed, read_raw).load()
