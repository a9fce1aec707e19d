"""What must be finished before Python leaves."""

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any


def finish(owner: Any, work: Callable[[Any], None]) -> None:
    """Call work(owner) when Python begins to leave, if the owner still lives then.

    `atexit` is too late: by then no thread pool takes work any more, and a library that hands
    some out in the middle of its own would wait for ever.
    """
    alive = weakref.ref(owner)

    def last() -> None:
        if (living := alive()) is not None:
            with contextlib.suppress(Exception):
                work(living)

    # Python has no public name for this moment; where it has none at all, nothing is finished.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(last)
