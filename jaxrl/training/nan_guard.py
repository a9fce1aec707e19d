"""Non-finite environments and updates: warn in the cycle in which it happens, or stop."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.envs import OBS_LIMIT, nan_capture
from jaxrl.errors import TrainingStopped
from jaxrl.programs import Program
from jaxrl.training.run import Member, Run
from jaxrl.types import TrainState
from jaxrl.utils import atomic_io, processes, trees
from jaxrl.utils.formatting import plural

# Fraction of non-finite steps in a cycle above which nothing is left to learn from. Not 1: steps
# are counted in float32.
_HOPELESS = 0.99


def _remedy(section: str) -> str:
    if section == "offpolicy":
        return "Try lower learning rates (--offpolicy.q-lr, r-lr), or --offpolicy.reward-scale."
    rewards = "normalize-reward" if section == "ppo" else "reward-scale"
    names = [f"--{section}.{name}" for name in ("learning-rate", "max-grad-norm", rewards)]
    return f"Try a lower {names[0]} or {names[1]}, or {names[2]}."


class TrainingDiverged(TrainingStopped):
    """Gradients stayed non-finite; the last good checkpoint is untouched."""


def check_updates(run: Run, rows: list[dict[str, float]], cycles: int) -> None:
    """Stop after too many consecutive non-finite updates; a population, when all members have.

    Until then a diverged member goes on beside the others: its updates are skipped.
    """
    limit = run.config.learning.max_nonfinite_updates
    for member in run.members:
        diverged = member.nonfinite_streak >= limit
        if diverged and not member.diverged and len(run.members) > 1:
            run.console.warn(_diverged_member(member))
        member.diverged = diverged
    if all(member.diverged for member in run.members):
        for member, row in zip(run.members, rows, strict=True):
            member.log(cycles, row | {"train/diverged": 1.0})  # reports must know how it ended
        raise _diverged(run, rows[0], cycles)


def warn_of_skipped(run: Run, member: Member, skipped: int) -> None:
    """Say in the cycle in which it happens that non-finite updates were skipped."""
    if (new := skipped - member.skipped_updates) > 0:
        who = run.label(member)
        run.console.warn(
            f"{who}{new:,} gradient updates of this cycle were non-finite and were "
            "skipped (train/n_skipped)"
        )
    member.skipped_updates = skipped


def _diverged_member(member: Member) -> str:
    number = member.nonfinite_streak
    return f"{member.folder.name} diverged: {number} consecutive non-finite updates"


def check_end(run: Run, cycles: int) -> None:
    """Raise if the whole last iteration was non-finite; say it of single members."""
    limit = min(run.config.learning.max_nonfinite_updates, run.config.learning.updates)
    diverged = [member for member in run.members if member.nonfinite_streak >= limit]
    for member in diverged if run.overview else ():
        run.console.warn(_diverged_member(member))
    if len(diverged) == len(run.members):
        raise _diverged(run, {}, cycles)


def _diverged(run: Run, values: dict[str, float], cycles: int) -> TrainingDiverged:
    nonfinite = [n for n, v in values.items() if n.startswith("train/") and not math.isfinite(v)]
    run.checkpoints.wait()
    saved = run.checkpoints.steps()
    last = f"The checkpoint at step {max(saved):,} is untouched." if saved else "No checkpoint yet."
    return TrainingDiverged(
        f"Training diverged at step {run.env_steps(cycles):,}: {run.members[0].nonfinite_streak} "
        f"consecutive non-finite updates ({', '.join(nonfinite[:3]) or 'train/grad_norm'}). {last} "
        f"{_remedy(run.config.algo_section)}"
    )


class NonFiniteEnvironmentError(TrainingStopped):
    """An environment's observation, reward or ending was non-finite."""


def check_environments(run: Run, state: TrainState, cycles: int) -> None:
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
            who = run.label(member)
            run.console.warn(
                f"{who}environments produced non-finite values in "
                f"{member.nonfinite_steps:,} of {steps:,} steps {when}, and were reset "
                "(rollout/diverged; --task.on-nan stop shows where)"
            )
    if all(member.nonfinite_steps >= _HOPELESS * steps for member in run.members):
        raise NonFiniteEnvironmentError(
            f"Training stopped: environments produced non-finite values at every step {when}. "
            "--task.on-nan stop names the values and writes the state that leads to them."
        )


def _stop(run: Run, state: TrainState) -> None:
    """Raise with what is known of the first non-finite step."""
    captures = processes.fetch(run.program.nan_captures(state))
    if not captures:
        number = run.members[0].nonfinite_steps
        raise NonFiniteEnvironmentError(
            f"--task.on-nan stop: environments produced non-finite values in "
            f"{plural(number, 'step')} of this cycle. {run.config.env} does not expose its state; "
            "none was written."
        )
    for member, capture in zip(run.members, captures, strict=True):
        _stop_if_captured(run.program, capture, member.folder)


def _stop_if_captured(
    program: Program, capture: nan_capture.NonFiniteCapture, folder: Path
) -> None:
    at = capture.captured_at
    if not (at != nan_capture.NEVER).any():
        return
    # The one that broke first; of several, the first in line.
    index = int(np.argmin(np.where(at == nan_capture.NEVER, np.iinfo(np.int32).max, at)))
    row = jax.tree.map(lambda leaf: leaf[index], capture)
    step = int(row.captured_at) * program.config.task.action_repeat
    file = folder / "nonfinite" / f"environment-{index}-step-{step}.npz"
    if processes.is_main():
        _dump(program, row, file)
    others = int((at != nan_capture.NEVER).sum()) - 1
    beside = f" ({others} more in the same cycle)" if others else ""
    raise NonFiniteEnvironmentError(
        f"--task.on-nan stop: environment {index} produced non-finite values at step {step:,}, "
        f"step {int(row.age):,} of its episode: {_what(row)}{beside}. Its state before that step, "
        f"the action and the result are in {file}. With --task.on-nan restart it would have been "
        "reset and counted in rollout/diverged."
    )


def _what(row: nan_capture.NonFiniteCapture) -> str:
    """Name the non-finite values: those of the reset, or else those of the step."""
    if bad := _nonfinite(trees.named_leaves({"obs": row.before.obs})):
        return f"after its reset, {bad}"
    parts = {"reward": row.reward, "done": row.done, "truncation": row.truncation}
    found = _nonfinite(parts | trees.named_leaves({"obs": row.obs}))
    return found or f"a value above the limit {OBS_LIMIT:g}"


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
        for name, leaf in trees.named_leaves(program.unpack_env_state(row.before)).items()
    }
    arrays |= {"action": row.action, "after/reward": row.reward}
    arrays |= {"after/done": row.done, "after/truncation": row.truncation}
    arrays |= trees.named_leaves({"after": {"obs": row.obs}})
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(file) as written:
        np.savez(written, allow_pickle=False, **{k: np.asarray(v) for k, v in arrays.items()})
