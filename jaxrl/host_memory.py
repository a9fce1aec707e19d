"""How much memory the host has left, asked before something large is read."""

import contextlib
from pathlib import Path

from jaxrl.errors import UserError


def available() -> int | None:
    """Return the bytes that can be allocated now; None on systems that do not tell."""
    limits = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line[:13] == "MemAvailable:"]
    with contextlib.suppress(OSError, ValueError):  # a container's own limit, or "max"
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits, default=None)


def check_fits(what: str, size: int, copies: int = 2) -> None:
    """Raise a UserError if there is no room for `size` bytes.

    What is read is mostly converted: there are two copies of it for a moment.
    """
    room = available()
    if room is not None and size * copies > room:
        twice = " and it takes twice its size" if copies == 2 else ""
        raise UserError(
            f"{what} is {size / 2**30:,.1f} GiB, too large to be read: "
            f"{room / 2**30:,.1f} GiB of memory are available{twice}."
        )
