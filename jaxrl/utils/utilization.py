"""How busy CPU and GPU are, in percent."""

import contextlib
import os
import time
from typing import Any

import jax


class Utilization:
    """Reads the use of the CPU since the last reading, and of the GPUs now."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._gpus = _gpu_handles()

    def read(self) -> dict[str, float]:
        """Return the metrics; that of GPUs only where NVML is installed (the extra gpu)."""
        wall, cpu = time.monotonic(), time.process_time()
        used = (cpu - self._cpu) / max(wall - self._wall, 1e-9)
        self._wall, self._cpu = wall, cpu
        row = {"time/cpu_percent": 100 * used}
        with contextlib.suppress(Exception):  # a driver that does not report it
            if self._gpus:
                import pynvml  # pyright: ignore[reportMissingImports]

                busy = [pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu for gpu in self._gpus]
                row["time/gpu_percent"] = sum(busy) / len(busy)
        return row


def _gpu_handles() -> list[Any]:
    gpus = [device for device in jax.local_devices() if device.platform == "gpu"]
    with contextlib.suppress(Exception):  # not installed, or no driver of NVIDIA
        if gpus:
            import pynvml  # pyright: ignore[reportMissingImports]

            pynvml.nvmlInit()
            return [pynvml.nvmlDeviceGetHandleByIndex(_index(device)) for device in gpus]
    return []


def _index(device: Any) -> int:
    """Return the number of a GPU among all of the machine's, as NVML counts them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [int(n) for n in visible.split(",") if n.strip().isdecimal()]
    local = int(getattr(device, "local_hardware_id", None) or 0)
    return numbers[local] if local < len(numbers) else local
