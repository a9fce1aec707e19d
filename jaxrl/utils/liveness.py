"""Connections of all processes to process 0, which close when a process ends.

The kernel closes them however a process ends, so the others know at once, and need not wait for
JAX's heartbeats. A machine that vanishes closes nothing: there the kernels of the others notice
that theirs are not answered.
"""

import contextlib
import ctypes
import resource
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable

_Ended = Callable[[int, str], None]  # takes the number of a process, and why it ends if it said so
_DESCRIPTORS = 65536  # of thousands of processes; the usual limit is 1,024
_BACKLOG = 4096  # processes that connect at the same time


class Hub:
    """The connections at process 0."""

    def __init__(self, ended: _Ended, heartbeat: int) -> None:
        self._ended, self._heartbeat = ended, heartbeat
        self._others: dict[socket.socket, int] = {}
        self._token = secrets.token_hex(8)  # a stranger that connects is not a process of the run
        _allow_descriptors()
        self._server = _listen()
        self.address = f"{self._server.getsockname()[1]} {self._token}"
        threading.Thread(target=self._serve, daemon=True).start()

    def notify(self, why: str, timeout: float) -> None:
        """Tell the others why this process ends; return when all of them have ended."""
        for other in list(self._others):
            with contextlib.suppress(OSError):
                other.sendall(why.encode())
        until = time.monotonic() + timeout
        while self._others and time.monotonic() < until:
            time.sleep(0.02)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._server, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._server:
                        if other := self._accept():
                            ready.register(other, selectors.EVENT_READ, other)
                    elif not self._hear(key.data):
                        ready.unregister(key.data)
                        key.data.close()

    def _accept(self) -> socket.socket | None:
        """Accept a connection; one that fails must not end those of the others."""
        try:
            other = self._server.accept()[0]
        except OSError:  # no descriptor is free: the connection waits
            time.sleep(0.1)
            return None
        try:
            return _kept_alive(other, self._heartbeat)
        except OSError:  # it is closed already
            other.close()
            return None

    def _hear(self, other: socket.socket) -> bool:
        """Read a greeting, a reason or the end; tell whether to read on."""
        text = _read(other)
        if other not in self._others:
            greeting, _, text = text.partition("\n")
            token, _, rank = greeting.partition(" ")
            if token != self._token:
                return False
            self._others[other] = int(rank)
            if not text:
                return True
        rank = self._others.pop(other)
        threading.Thread(target=self._ended, args=(rank, text), daemon=True).start()
        return False


class Spoke:
    """The connection at any other process."""

    def __init__(self, host: str, address: str, rank: int, ended: _Ended, heartbeat: int) -> None:
        port, token = address.split()
        self._main = _kept_alive(socket.create_connection((host, int(port)), timeout=10), heartbeat)
        self._main.settimeout(None)
        self._main.sendall(f"{token} {rank}\n".encode())
        read = lambda: ended(0, _read(self._main))  # noqa: E731
        threading.Thread(target=read, daemon=True).start()

    def notify(self, why: str, timeout: float) -> None:
        """Tell process 0 why this process ends; it tells the others."""
        del timeout
        with contextlib.suppress(OSError):
            self._main.sendall(why.encode())


def delay_aborts() -> None:
    """Let an abort of this process wait for six seconds, in which Python can say why.

    JAX aborts when process 0 is gone, by a callback that cannot be a Python function (jaxlib
    0.10.2), and quicker than a Python thread wakes up. A signal handler in Python would come too
    late as well. So the handler is libc's `sleep`, which is called with the signal's number.
    """
    libc = ctypes.CDLL(None)
    libc.signal(signal.SIGABRT, libc.sleep)


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
        )
    return socket.create_server(("", 0), backlog=_BACKLOG)


def _allow_descriptors() -> None:
    """Raise the soft limit of open files: process 0 has a connection for each other one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _kept_alive(connection: socket.socket, heartbeat: int) -> socket.socket:
    """Let the kernel close a connection that is not answered for half a heartbeat.

    JAX aborts a process without a word if process 0 is silent for longer than that.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = {"TCP_KEEPIDLE": heartbeat // 4, "TCP_KEEPINTVL": heartbeat // 8, "TCP_KEEPCNT": 2}
    for name, value in seconds.items():
        if hasattr(socket, name):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), max(value, 1))
    return connection


def _read(connection: socket.socket) -> str:
    """Return a message; "" when the other process has ended."""
    try:
        return connection.recv(4096).decode(errors="replace")
    except OSError:
        return ""
