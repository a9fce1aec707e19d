"""A lock for file systems without flock: a file with host name, pid and a heartbeat.

The kernel does not release it when a process is killed. So its owner touches it every few seconds,
and a lock without a recent heartbeat is taken over.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl.errors import TrainingStopped, UserError

NAME = ".lock-heartbeat"
BEAT = 10.0  # seconds
STALE = 120.0  # seconds without a heartbeat: a suspended process may miss some
_SETTLE = 1.0  # seconds after which a process that takes over at the same time is visible


class LockLost(TrainingStopped):
    """Another process took over the lock."""


class HeartbeatLock:
    """Held from `acquire` to `release`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / NAME
        self._owner = {"host": socket.gethostname(), "pid": os.getpid(), "token": uuid.uuid4().hex}
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)

    def acquire(self) -> None:
        """Create the lock file, or take over one whose heartbeat is old."""
        if not self._create():
            age = _age(self._folder, self._path)
            if age is not None and age < STALE:
                raise UserError(
                    f"Another process is training in '{self._folder}': {_describe(self._path)}, "
                    f"heartbeat {age:.0f} s ago. Wait for it to end; if it was killed, try again "
                    f"in {STALE - age:.0f} s."
                )
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            created = self._create()
            time.sleep(_SETTLE)
            if not created or not self._is_ours():
                raise UserError(f"Another process has just begun to train in '{self._folder}'.")
        self._thread.start()

    def check(self) -> None:
        """Raise LockLost if another process has taken over: both would write the same files."""
        if not self._is_ours():
            raise LockLost(
                f"This process was suspended for more than {STALE:.0f} s, and another one took "
                f"over '{self._folder}' ({_describe(self._path)}). Nothing more is written here."
            )

    def release(self) -> None:
        """Stop the heartbeat and remove the file."""
        self._released.set()
        self._thread.join()
        if self._is_ours():
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _create(self) -> bool:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            json.dump(self._owner, file)
        return True

    def _is_ours(self) -> bool:
        owner = _read(self._path)
        # A deleted folder has no other owner; its absence is reported elsewhere.
        return owner is None or owner.get("token") == self._owner["token"]

    def _beat(self) -> None:
        while not self._released.wait(BEAT):
            with contextlib.suppress(OSError):
                if self._is_ours():
                    os.utime(self._path, follow_symlinks=False)


def _age(folder: Path, path: Path) -> float | None:
    """Return the seconds since the last heartbeat, by the clock of the file system alone."""
    probe = folder / f"{NAME}-{uuid.uuid4().hex}"
    try:
        probe.touch(exist_ok=False)
        now = probe.stat().st_mtime
        return max(now - path.lstat().st_mtime, 0.0)
    except FileNotFoundError:
        return None
    finally:
        probe.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """Return the owner of a lock; None if there is no file, {} if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        try:
            owner = json.loads(file.read(1000))
        except (OSError, ValueError, RecursionError):
            return {}
    return owner if isinstance(owner, dict) else {}


def _describe(path: Path) -> str:
    owner = _read(path) or {}
    return f"process {owner.get('pid', '?')} on {owner.get('host', 'an unknown host')}"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[HeartbeatLock]:
    """Hold the lock of a folder."""
    lock = HeartbeatLock(folder)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()
