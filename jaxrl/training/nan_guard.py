"""Non-finite environments: warn in the cycle in which it happens, or stop with a report."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import env_names
from jaxrl.envs import OBS_LIMIT, nan_capture
from jaxrl.errors import UserError
from jaxrl.policies import files as network_files
from jaxrl.programs.program import Program
from jaxrl.training.run import Run
from jaxrl.types import TrainState
from jaxrl.utils import atomic_io

# Of the steps of a cycle, so many were non-finite that nothing is left to learn from. Not quite
# all: they are counted in float32.
_HOPELESS = 0.99


class EnvironmentBroke(UserError):
    """An environment's observation, reward or ending was non-finite."""


def check(run: Run, state: TrainState, cycles: int) -> None:
    """Warn of environments that were non-finite in this cycle; stop where asked to.

    A run whose environments were non-finite at every step stops in any case: it learns nothing.
    """
    if not any(member.nonfinite_steps for member in run.members):
        return
    if run.config.task.on_nan == "stop":
        _stop(run, state)
    taken = run.config.steps_per_iteration // run.config.task.action_repeat
    steps, when = (
        taken * run.config.iterations,
        f"in the cycle up to step {run.env_steps(cycles):,}",
    )
    for member in run.members:
        if member.nonfinite_steps:
            who = f"{member.folder.name}: " if run.overview else ""
            run.console.say(
                f"warning: {who}environments produced non-finite values in "
                f"{member.nonfinite_steps:,} of {steps:,} steps {when}, and were reset "
                "(rollout/diverged; --task.on-nan stop shows where)"
            )
    if all(member.nonfinite_steps >= _HOPELESS * steps for member in run.members):
        raise EnvironmentBroke(
            f"Training stopped: environments produced non-finite values at every step {when}. "
            "--task.on-nan stop names the values and writes the state that leads to them."
        )


def _stop(run: Run, state: TrainState) -> None:
    """Raise with what is known of the first non-finite step."""
    if env_names.is_hosted(run.config.env):
        number = run.members[0].nonfinite_steps
        raise EnvironmentBroke(
            f"--task.on-nan stop: environments produced non-finite values in {number:,} steps of "
            f"this cycle. {run.config.env} keeps its state to itself, so none was written."
        )
    captures = run.program.each(state.collector.env.nan_capture)
    for member, captured in zip(run.members, captures, strict=True):
        _stop_if_captured(run.program, captured, member.folder)


def _stop_if_captured(
    program: Program, captured: nan_capture.NonFiniteCapture, folder: Path
) -> None:
    at = jax.device_get(captured.captured_at)
    if not (at != nan_capture.NEVER).any():
        return
    # The one that broke first; of several, the first in line.
    index = int(np.argmin(np.where(at == nan_capture.NEVER, np.iinfo(np.int32).max, at)))
    row = jax.device_get(jax.tree.map(lambda leaf: leaf[index], captured))
    step = int(row.captured_at) * program.config.task.action_repeat
    file = folder / "broken" / f"environment-{index}-step-{step}.npz"
    _dump(program, row, file)
    others = int((at != nan_capture.NEVER).sum()) - 1
    beside = f" ({others} more in the same cycle)" if others else ""
    raise EnvironmentBroke(
        f"--task.on-nan stop: environment {index} produced non-finite values at step {step:,}, "
        f"step {int(row.age):,} of its episode: {_what(row)}{beside}. Its state before that step, "
        f"the action and the result are in {file}. With --task.on-nan restart it would have been "
        "reset and counted in rollout/diverged."
    )


def _what(row: nan_capture.NonFiniteCapture) -> str:
    """Name the non-finite values: those of the reset, or else those of the step."""
    if bad := _nonfinite(network_files.named_leaves({"obs": row.before.obs})):
        return f"after its reset, {bad}"
    parts = {"reward": row.reward, "done": row.done, "truncation": row.truncation}
    found = _nonfinite(parts | network_files.named_leaves({"obs": row.obs}))
    return found or "a number too large to learn from"


def _nonfinite(parts: dict[str, Any]) -> str:
    bad = []
    for name, values in parts.items():
        if np.issubdtype(np.asarray(values).dtype, np.inexact):
            places = np.argwhere(~(np.abs(values) < OBS_LIMIT)).tolist()
            for place in places[:3]:
                bad.append(f"{name}{place or ''} is {np.asarray(values)[tuple(place)]:.3g}")
    return ", ".join(bad[:6])


def _dump(program: Program, row: nan_capture.NonFiniteCapture, file: Path) -> None:
    """Write the state, the action and the result of a step; arrays only."""
    arrays: dict[str, Any] = {
        f"before/{name}": leaf
        for name, leaf in network_files.named_leaves(program.env.brax_state(row.before)).items()
    }
    arrays |= {"action": row.action, "after/reward": row.reward}
    arrays |= {"after/done": row.done, "after/truncation": row.truncation}
    arrays |= network_files.named_leaves({"after": {"obs": row.obs}})
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(file) as written:
        np.savez(written, allow_pickle=False, **{k: np.asarray(v) for k, v in arrays.items()})
