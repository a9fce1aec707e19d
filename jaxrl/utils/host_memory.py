"""Memory of the machine: total and available."""

import contextlib
import os
import resource
from pathlib import Path

from jaxrl.errors import UserError

_CONTAINER_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",  # version 1
)


def total() -> int | None:
    """Return the bytes this process may use, now or later; None if unknown."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in _CONTAINER_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # a number, or "max"
            limits.append(int(Path(file).read_text(encoding="utf-8")))
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]  # ulimit -v
    limits += [address_space] if address_space != resource.RLIM_INFINITY else []
    return min(limits, default=None)


def available() -> int | None:
    """Return the bytes that can be allocated now; None if unknown."""
    limits = [limit for limit in (total(), meminfo("MemAvailable")) if limit is not None]
    return min(limits, default=None)


def meminfo(name: str) -> int | None:
    """Return the bytes of one line of /proc/meminfo; other systems have none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        values = (int(line.split()[1]) * 2**10 for line in lines if line.startswith(f"{name}:"))
        return next(values, None)
    return None


def check_fits(what: str, size: int, copies: int = 2) -> None:
    """Raise a UserError if `size` bytes do not fit in memory.

    Arrays that are read are mostly converted: two copies exist for a moment.
    """
    room = available()
    if room is not None and size * copies > room:
        twice = " and it takes twice its size" if copies == 2 else ""
        raise UserError(
            f"{what} is {size / 2**30:,.1f} GiB, too large to be read: "
            f"{room / 2**30:,.1f} GiB of memory are available{twice}."
        )
