"""Share compiled programs between the runs of one test process, and leave out their plots.

A tiny run spends most of its time tracing a program that an earlier run traced already. Tests that
patch traced code must not use this.
"""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from jaxrl.config import settings
from jaxrl.policies import reward_files
from jaxrl.programs import DeviceProgram, OfflineExecutor, device, offline
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.reports import plots
from jaxrl.types import TrainState
from jaxrl.utils import sharding

# The length of a run is part of its initial state, not of its programs; so is its curriculum.
_LENGTH = ("epochs", "total_steps", "cycles")
_EVALUATIONS = "eval.num_envs"
# By what training depends on, and the number of evaluation environments.
_COMPILED: dict[tuple[str, int], DeviceExecutor] = {}
_OFFLINE: dict[str, OfflineExecutor] = {}
_wait = OfflineExecutor.wait


@dataclass(frozen=True)
class _Shared(DeviceExecutor):
    def init_state(self) -> TrainState:
        """Return an initial state with the values of this run, not of the one that compiled."""

        def put(old, new):
            return sharding.put(np.broadcast_to(new, old.shape).astype(old.dtype), old.sharding)

        state = super().init_state()
        total = put(state.learner.total_iterations, self.program.config.total_iterations)
        first = jax.tree.map(put, state.curriculum, self.program.env.template.curriculum)
        learner = state.learner.replace(total_iterations=total)
        return state.replace(learner=learner, curriculum=first)


def share_programs(patch: pytest.MonkeyPatch) -> None:
    """Compile each program once."""
    patch.setattr(device, "compile_programs", compile_once)
    patch.setattr(offline.OfflineExecutor, "wait", wait_once)


def leave_out_plots(patch: pytest.MonkeyPatch) -> None:
    """Draw nothing at the end of a run: it takes a third of the time of a tiny one."""
    for name in ("learning_curve", "learning_phases", "population_curve"):
        patch.setattr(plots, name, lambda *_: None)
    patch.setattr(reward_files, "_draw", lambda *_: None)


def compile_once(program: DeviceProgram, same: str | None = None) -> DeviceExecutor:
    """Return the programs of an earlier run with the same key, with this run's settings.

    `same` is the key; by default all settings that affect compilation.
    """
    key = (same, 0) if same else _key(program)
    if key not in _COMPILED:
        compiled = compile_programs(program)
        _COMPILED[key] = _Shared(**vars(compiled))
    found = replace(_COMPILED[key], program=program)
    return found if same or program.config.eval.num_envs else replace(found, _evaluate=None)


def wait_once(executor: OfflineExecutor) -> None:
    """Give an executor the compiled functions of an earlier one with the same settings and data."""
    compiled = settings.compiled(executor.program.config)
    same = {path: x for path, x in compiled.items() if path not in _LENGTH}
    key = repr((same, executor.program.members))
    if key not in _OFFLINE:
        _wait(executor)
        _OFFLINE[key] = executor
    earlier = _OFFLINE[key]
    executor._compiled, executor._held_out = earlier._compiled, earlier._held_out
    if executor.program.env is not None:
        executor.__dict__["_play"] = earlier._play


def _key(program: DeviceProgram) -> tuple[str, int]:
    """Members differ in values of their state only; evaluations are a program of their own.

    A run without evaluation can therefore use the programs of one that has it.
    """
    compiled = settings.compiled(program.config)
    if program.members:
        static = settings.static(program.config)
        compiled = {path: static[path] for path in compiled if path in static}
    same = {path: x for path, x in compiled.items() if path not in (*_LENGTH, _EVALUATIONS)}
    training = repr((same, len(program.members), program.mesh))
    number = program.config.eval.num_envs
    return training, number or next((n for key, n in _COMPILED if key == training), 0)
