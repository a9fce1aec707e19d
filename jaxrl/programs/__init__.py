"""From a configuration to compiled programs, for devices, Gymnasium and recorded data.

`build` composes a `Program`; its `start` begins to compile and returns an `Executor`.
"""

from jaxrl.programs.build import build, build_device
from jaxrl.programs.device import DeviceExecutor, DeviceProgram
from jaxrl.programs.executor import Executor
from jaxrl.programs.gymnasium import GymnasiumExecutor, GymnasiumProgram
from jaxrl.programs.offline import OfflineExecutor, OfflineProgram
from jaxrl.programs.program import Program

__all__ = [
    "DeviceExecutor",
    "DeviceProgram",
    "Executor",
    "GymnasiumExecutor",
    "GymnasiumProgram",
    "OfflineExecutor",
    "OfflineProgram",
    "Program",
    "build",
    "build_device",
]
