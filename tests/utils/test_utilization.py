"""How busy CPU and GPU are."""

import sys
import time
import types

import jax

from jaxrl.utils.utilization import Utilization


def test_cpu_time_is_a_fraction_of_wall_time():
    meter = Utilization()
    time.sleep(0.2)
    idle = meter.read()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    busy = meter.read()
    assert idle.keys() == busy.keys() == {"time/cpu_percent"}
    assert idle["time/cpu_percent"] < 90 and busy["time/cpu_percent"] > idle["time/cpu_percent"]


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
