"""Read a pickle without running anything in it.

A pickle is a little program that may import and call whatever it likes. Here every name it asks
for becomes an empty stand-in that only remembers what it was given; names that no motion file
needs are refused, and nothing is ever imported. Turning stand-ins into arrays is the business of
`pickles`.
"""

import io
import pickle
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from jaxrl.errors import UserError


class StandIn:
    """What a pickle believes to be an object of some class, or the result of some function."""

    name = ""  # this and the file are set in a subclass of its own for each name
    file = Path()
    arguments: tuple = ()
    state: Any = None
    raw: Any = None  # what followed in the file, outside of the pickle

    def __new__(cls, *arguments: Any) -> "StandIn":
        """Remember the arguments, whether called or merely created."""
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unbuffered:
    """The part of a file that an unpickler needs.

    Without `peek` it reads no further than it must, so that what lies between the opcodes of a
    joblib file is still there to be read.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        self.read, self.readinto, self.readline = stream.read, stream.readinto, stream.readline


# A file's stream and a stand-in that just got its state -> the bytes that follow, or None.
FollowUp = Callable[[io.BytesIO, StandIn], Any]


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: Path, stream: io.BytesIO, allowed: Collection[str], follow_up: FollowUp
    ) -> None:
        # Text of Python 2 may be bytes in truth; latin1 loses none of them.
        super().__init__(_Unbuffered(stream), encoding="latin1")
        self.file, self.allowed = file, allowed
        self.remember = lambda made: follow_up(stream, made)

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full == "collections.OrderedDict":
            return dict
        if full not in self.allowed:
            raise UserError(
                f"'{self.file}' asks for {full[:100]!r}, which no motion needs: refused, and "
                "nothing in the file was run. Do not open it with other programs unless you trust "
                "its source."
            )
        remember = self.remember

        def set_state(self: StandIn, state: Any) -> None:
            self.state = state
            self.raw = remember(self)

        # A class of its own, because a pickle may write into whatever it holds.
        return type(name, (StandIn,), {"name": full, "file": self.file, "__setstate__": set_state})

    def persistent_load(self, pid: Any) -> Any:
        return pid


def load(
    file: Path,
    stream: io.BytesIO,
    allowed: Collection[str],
    follow_up: FollowUp = lambda stream, made: None,
) -> Any:
    """Read one pickle from the stream: plain values, and stand-ins for the names allowed."""
    return _Unpickler(file, stream, allowed, follow_up).load()
