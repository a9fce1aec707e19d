"""Share compiled programs between the runs of one test process.

A tiny run spends most of its time tracing a program that an earlier run traced already. Tests that
patch traced code must not use this.
"""

from dataclasses import dataclass, replace

import jax
import numpy as np

from jaxrl.config import settings
from jaxrl.programs import DeviceProgram
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.types import TrainState

# The length of a run is part of its initial state, not of its programs.
_LENGTH = ("epochs", "total_steps", "cycles")
_COMPILED: dict[str, DeviceExecutor] = {}


@dataclass(frozen=True)
class _Shared(DeviceExecutor):
    def init_state(self) -> TrainState:
        """Return an initial state with the length of this run, not of the one that compiled."""
        state = super().init_state()
        old, total = state.learner.total_iterations, self.program.config.total_iterations
        total = jax.device_put(np.full(old.shape, total, np.int32), old.sharding)
        return state.replace(learner=state.learner.replace(total_iterations=total))


def compile_once(program: DeviceProgram, same: str | None = None) -> DeviceExecutor:
    """Return the programs of an earlier run with the same key, with this run's settings.

    `same` is the key; by default all settings that affect compilation.
    """
    same = same or _name(program)
    if same not in _COMPILED:
        compiled = compile_programs(program)
        _COMPILED[same] = _Shared(**vars(compiled))
    return replace(_COMPILED[same], program=program)


def _name(program: DeviceProgram) -> str:
    flat = [settings.compiled(each) for each in (program.config, *program.members)]
    same = [{k: v for k, v in one.items() if k not in _LENGTH} for one in flat]
    return repr((same, program.mesh))
