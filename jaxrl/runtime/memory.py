"""How much memory is in use, and what to say when it was too little."""

import contextlib
import os
from pathlib import Path

import jax


def in_use() -> dict[str, float]:
    """Return MiB in use on the busiest device, and by this process.

    A processor's memory is the process's own: where devices do not tell, the two are the same.
    """
    stats = [d.memory_stats() for d in jax.local_devices()]
    used = [s["bytes_in_use"] for s in stats if s and "bytes_in_use" in s]
    host = _of_process()
    device = max(used) / 2**20 if used else host
    values = {"time/memory_mb": device, "time/host_memory_mb": host}
    return {name: value for name, value in values.items() if value is not None}


def of_device() -> int | None:
    """Return how many bytes programs may use on the smallest device; None where that is unknown.

    A processor has the machine's memory, or as much of it as this process is given.
    """
    stats = [device.memory_stats() for device in jax.local_devices()]
    limits = [s["bytes_limit"] for s in stats if s and "bytes_limit" in s]
    if not limits:
        with contextlib.suppress(OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        with contextlib.suppress(OSError, ValueError):  # a container's own limit, or "max"
            limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits, default=None)


def free() -> int | None:
    """Return how many of these bytes are not in use; None where that is unknown."""
    room, used = of_device(), in_use().get("time/memory_mb", 0.0)
    return None if room is None else max(0, room - int(used * 2**20))


def _of_process() -> float | None:
    with contextlib.suppress(OSError):  # other systems have no /proc
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return None


def ran_out(error: BaseException) -> bool:
    """Tell whether an error means that a device had too little memory."""
    return "RESOURCE_EXHAUSTED" in str(error)
