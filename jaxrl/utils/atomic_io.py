"""Files that appear complete or not at all, and are never written through a symbolic link.

All files of a run folder are written here: a folder from elsewhere may hold links, pipes or
devices in place of files.
"""

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from jaxrl.errors import UserError

_DRAFT = ".jaxrl-{}.tmp"  # temporary files, with a random number
_STALE = 60.0  # seconds; a younger draft may belong to another process that is writing now
MAX_TEXT = 2**26  # bytes of a text file


@contextlib.contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Create an empty file that replaces `path` when the block ends without an error.

    Disk errors name `path`, not the draft.
    """
    draft = path.with_name(_DRAFT.format(secrets.token_hex(8)))
    try:
        # Exclusive: an existing file or link of this name is not touched.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        yield draft
        sync(draft)
        os.replace(draft, path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        if error.filename not in (None, str(draft), draft):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when it is complete; on an error `path` is unchanged."""
    with drafted(path) as draft, open(draft, "wb") as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text.encode())


def appending(path: Path) -> TextIO:
    """Open a text file to append to and to read back; a new one if there is none."""
    return os.fdopen(opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+")


def opened(path: Path, flags: int) -> int:
    """Open a regular file, never through a symbolic link; return its descriptor.

    Raises:
      UserError: it is a link, or a pipe or device, which could also block for ever.
    """
    try:
        # A pipe without a reader would block; regular files ignore O_NONBLOCK.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise _not_regular(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def _not_regular(path: Path) -> UserError:
    kind = "a symbolic link" if path.is_symlink() else "not a regular file"
    return UserError(f"'{path}' is {kind}: remove it, or put a regular file in its place.")


def read_text(path: Path, most: int = MAX_TEXT) -> str:
    """Read a text file of UTF-8; raise a UserError if it is none, or larger than `most` bytes."""
    if not path.is_file():
        path.stat()  # no such file, or not allowed to look
        raise _not_regular(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UserError(f"'{path}' is larger than {most:,} bytes, the maximum.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"'{path}' is not a text file: {error}") from error


def check_folder(folder: Path) -> None:
    """Refuse a run folder with links that lead out of it, or with pipes, sockets or devices.

    The folder itself may be reached by a link, and links within it may lead to its other parts.
    """
    root = os.path.realpath(folder)
    for entry in _entries(root):
        part = folder / os.path.relpath(entry.path, root)
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if not Path(target).is_relative_to(root):
                raise UserError(
                    f"'{part}' is a symbolic link that leads out of its run folder, to '{target}'. "
                    "Replace it by what it leads to, or remove it."
                )
        elif not (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)):
            raise UserError(f"'{part}' is neither a file nor a folder: remove it.")


def remove_drafts(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder and those below it."""
    for entry in _entries(os.path.realpath(folder)):
        start, end = _DRAFT.split("{}")
        if entry.name.startswith(start) and entry.name.endswith(end):
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE:
                    os.unlink(entry.path)


def _entries(root: str) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder without following links."""
    places = [root]
    while places:
        # Another process may remove a checkpoint meanwhile.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            with os.scandir(places.pop()) as entries:
                listed = list(entries)
            yield from listed
            places += [entry.path for entry in listed if entry.is_dir(follow_symlinks=False)]
