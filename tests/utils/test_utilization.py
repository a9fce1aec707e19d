"""How busy CPU and GPU are."""

import sys
import types

import jax

from jaxrl.utils import utilization
from jaxrl.utils.utilization import Utilization


def test_cpu_time_is_a_fraction_of_wall_time(monkeypatch):
    clock = {"monotonic": 10.0, "process_time": 1.0}
    for name in clock:
        monkeypatch.setattr(utilization.time, name, lambda name=name: clock[name])
    meter = Utilization()
    for cpu, percent in ((0.5, 25.0), (3.0, 150.0)):  # of 2 s
        clock["monotonic"] += 2.0
        clock["process_time"] += cpu
        assert meter.read() == {"time/cpu_percent": percent}


def test_gpus_are_read_from_nvml(monkeypatch):
    nvml = types.ModuleType("pynvml")
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByIndex = lambda number: number
    nvml.nvmlDeviceGetUtilizationRates = lambda gpu: types.SimpleNamespace(gpu=10 * gpu)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    devices = [types.SimpleNamespace(platform="gpu", local_hardware_id=i) for i in (0, 1)]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert Utilization().read()["time/gpu_percent"] == 40.0
