"""Memory of the devices: total, in use, and free."""

import contextlib
from pathlib import Path

import jax

from jaxrl.utils import host_memory


def in_use() -> dict[str, float]:
    """Return MiB in use on the busiest device, its peak, and MiB of this process.

    On the CPU, the memory of the device is that of the process.
    """
    host, host_peak = _of_process("VmRSS"), _of_process("VmHWM")
    if host is not None and host_peak is not None:
        host_peak = max(host, host_peak)  # the kernel counts them separately, not exactly
    values = {
        "time/memory_mb": _of_devices("bytes_in_use", host),
        "time/peak_memory_mb": _of_devices("peak_bytes_in_use", host_peak),
        "time/host_memory_mb": host,
    }
    return {name: value for name, value in values.items() if value is not None}


def _of_devices(name: str, default: float | None) -> float | None:
    stats = [device.memory_stats() for device in jax.local_devices()]
    values = [s[name] for s in stats if s and name in s]
    return max(values) / 2**20 if values else default


def of_device() -> int | None:
    """Return the bytes that programs may use on the smallest device; None if unknown.

    A CPU device has the memory of the machine, or the limit of this process.
    """
    stats = [device.memory_stats() for device in jax.local_devices()]
    limits = [s["bytes_limit"] for s in stats if s and "bytes_limit" in s]
    return min(limits) if limits else host_memory.total()


def of_all_devices(number: int) -> int | None:
    """Return the total bytes of `number` devices; CPU devices share one memory."""
    room = of_device()
    if room is None or jax.local_devices()[0].platform != "cpu":
        return room and room * number
    return room + (host_memory.meminfo("SwapTotal") or 0)


def free() -> int | None:
    """Return the free bytes of the busiest device; None if unknown."""
    room, used = of_device(), in_use().get("time/memory_mb", 0.0)
    return None if room is None else max(0, room - int(used * 2**20))


def _of_process(name: str) -> float | None:
    with contextlib.suppress(OSError, StopIteration):  # other systems have no /proc
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith(f"{name}:"))
        return int(line.split()[1]) / 2**10  # from KiB
    return None
