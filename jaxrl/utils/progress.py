"""What a command is doing, and for how long."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from jaxrl.utils import signals

# Called with what begins; the context ends with it.
Stage = Callable[[str], AbstractContextManager[None]]


def silent(text: str) -> AbstractContextManager[None]:
    """Say nothing: the default of functions that are no commands."""
    del text
    return contextlib.nullcontext()


@contextlib.contextmanager
def stage(text: str) -> Iterator[None]:
    """Print what begins to stderr, and its seconds when it ends; a terminal counts them.

    Ctrl-C ends the process at once: Python would hear it only when a compilation is done.
    """
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    out, began = Console(stderr=True, highlight=False), time.monotonic()
    if out.is_terminal:
        columns = (TextColumn(text, markup=False), TimeElapsedColumn())
        with (
            Progress(*columns, console=out, transient=True) as progress,
            signals.listening(at_once=text),
        ):
            progress.add_task("")
            yield
        print(text, end=" ...", file=sys.stderr)
    else:
        print(text, end=" ...", file=sys.stderr, flush=True)
        try:
            with signals.listening(at_once=text):
                yield
        except BaseException:
            print(file=sys.stderr)  # its message begins on a line of its own
            raise
    print(f" {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
