"""Stopping politely: the running cycle is finished and saved; asked twice, stop at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class StopRequest:
    """Set by Ctrl-C or SIGTERM, read between cycles."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _handle(self, number: int, frame: object) -> None:
        del frame
        if self.signal is not None and number == signal.SIGINT:
            os._exit(130)  # the second Ctrl-C: whatever is running does not matter any more
        self.signal = number
        name = signal.Signals(number).name
        text = f"\n{name}: finishing the running cycle, then saving (Ctrl-C again exits at once)\n"
        os.write(2, text.encode())


@contextlib.contextmanager
def listening() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request, as long as the context lasts."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # a notebook's worker thread cannot set handlers
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop._handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
