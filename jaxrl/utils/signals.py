"""Stopping politely: the running cycle is finished and saved; asked twice, stop at once.

Before the first cycle there is nothing to finish, and a compilation cannot be interrupted: then
the process ends at once.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

_HEARD = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Set by Ctrl-C or SIGTERM, read between cycles."""

    def __init__(self, at_once: str = "") -> None:
        self.signal: int | None = None
        self.at_once = at_once  # what the process is doing, if it should not be waited for

    def __bool__(self) -> bool:
        return self.signal is not None

    def receive(self, number: int) -> None:
        """Take one signal: the first asks, a second Ctrl-C ends the process."""
        name = signal.Signals(number).name
        if self.at_once:
            _exit(number, f"\n{name}: stopped while {self.at_once}\n")
        if self.signal is not None and number == signal.SIGINT:
            _exit(number)
        self.signal = number
        text = f"\n{name}: finishing the running cycle, then saving (Ctrl-C again exits at once)\n"
        os.write(2, text.encode())


def _exit(number: int, text: str = "") -> None:
    """End the process, whatever its threads are doing."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    if os.isatty(1):
        os.write(1, b"\x1b[?25h")  # a progress bar may have hidden the cursor
    os.write(2, text.encode())
    os._exit(128 + number)


def _watch(receiver: socket.socket, stop: StopRequest) -> None:
    """Read signal numbers until the other end closes."""
    while data := receiver.recv(1):
        if data[0] in _HEARD:  # the descriptor reports every signal that has a handler
            stop.receive(data[0])


_listeners: list[StopRequest] = []  # of nested contexts


def _forget() -> None:
    """Let signals end a forked child, which has inherited the handlers and the descriptor."""
    if _listeners and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)
        for number in _HEARD:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def listening(at_once: str = "") -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a request, as long as the context lasts.

    With `at_once`, which says what the process is doing, they end it.

    Python runs signal handlers only between bytecodes, but a compiled cycle can last minutes. The
    wake-up file descriptor is written at once, so a thread of its own hears every signal in time.
    """
    stop = StopRequest(at_once)
    if threading.current_thread() is not threading.main_thread():
        yield stop  # a notebook's worker thread cannot set handlers
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    watcher = threading.Thread(target=_watch, args=(receiver, stop), daemon=True)
    watcher.start()
    before = {number: signal.signal(number, lambda *_: None) for number in _HEARD}
    wakeup = signal.set_wakeup_fd(sender.fileno())
    _listeners.append(stop)
    try:
        yield stop
    finally:
        _listeners.remove(stop)
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        sender.close()
        watcher.join()
        receiver.close()
