"""How much memory there is, and how much of it is in use."""

import contextlib
from pathlib import Path

import jax

from jaxrl.utils import host_memory


def in_use() -> dict[str, float]:
    """Return MiB in use on the busiest device, the most it ever was, and MiB of this process.

    A processor's memory is the process's own: where devices do not tell, they are the same.
    """
    host, host_peak = _of_process("VmRSS"), _of_process("VmHWM")
    if host is not None and host_peak is not None:
        host_peak = max(host, host_peak)  # the kernel counts them apart, not to the page
    values = {
        "time/memory_mb": _of_devices("bytes_in_use", host),
        "time/peak_memory_mb": _of_devices("peak_bytes_in_use", host_peak),
        "time/host_memory_mb": host,
    }
    return {name: value for name, value in values.items() if value is not None}


def _of_devices(name: str, otherwise: float | None) -> float | None:
    stats = [device.memory_stats() for device in jax.local_devices()]
    found = [s[name] for s in stats if s and name in s]
    return max(found) / 2**20 if found else otherwise


def of_device() -> int | None:
    """Return how many bytes programs may use on the smallest device; None where that is unknown.

    A CPU has the host's memory, or as much of it as this process is given.
    """
    stats = [device.memory_stats() for device in jax.local_devices()]
    limits = [s["bytes_limit"] for s in stats if s and "bytes_limit" in s]
    return min(limits) if limits else host_memory.total()


def of_all_devices(number: int) -> int | None:
    """Return how many bytes `number` devices have together; CPU devices share one memory."""
    room = of_device()
    if room is None or jax.local_devices()[0].platform != "cpu":
        return room and room * number
    return room + (host_memory.meminfo("SwapTotal") or 0)


def free() -> int | None:
    """Return how many of these bytes are not in use; None where that is unknown."""
    room, used = of_device(), in_use().get("time/memory_mb", 0.0)
    return None if room is None else max(0, room - int(used * 2**20))


def _of_process(name: str) -> float | None:
    with contextlib.suppress(OSError, StopIteration):  # other systems have no /proc
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith(f"{name}:"))
        return int(line.split()[1]) / 2**10  # from KiB
    return None
