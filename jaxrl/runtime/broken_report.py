"""Stopping where an environment left the numbers, with its state in a file to look at."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl import files
from jaxrl.envs import broken
from jaxrl.errors import UserError
from jaxrl.runtime import network_files
from jaxrl.runtime.program import Program
from jaxrl.types import TrainState


class EnvironmentBroke(UserError):
    """An environment's observation or reward was not a number that can be learnt from."""


def stop_if_broken(program: Program, state: TrainState, folders: list[Path]) -> None:
    """Raise if an environment broke in this cycle, where that is to stop the run.

    There is a folder for each member.
    """
    if program.config.task.on_nan != "stop" or program.config.offline:
        return
    for noted, folder in zip(program.each(state.collector.env.broken), folders, strict=True):
        _stop_if_broken(program, noted, folder)


def _stop_if_broken(program: Program, noted: broken.Broken, folder: Path) -> None:
    at = jax.device_get(noted.at)
    if not (at != broken.NEVER).any():
        return
    # Of those that broke, the one that broke first; of several, the first in line.
    index = int(np.argmin(np.where(at == broken.NEVER, np.iinfo(np.int32).max, at)))
    row = jax.device_get(jax.tree.map(lambda leaf: leaf[index], noted))
    step = int(row.at) * program.config.task.action_repeat
    file = folder / "broken" / f"environment-{index}-step-{step}.npz"
    _dump(program, row, file)
    others = int((at != broken.NEVER).sum()) - 1
    beside = f" ({others} more broke later in the same cycle)" if others else ""
    raise EnvironmentBroke(
        f"--task.on-nan stop: environment {index} left the numbers at its step {step:,}, step "
        f"{int(row.age):,} of its episode: {_what(row)}{beside}. Its state before that step, the "
        f"action, and what came of it are in {file}. With --task.on-nan restart it would have been "
        "started anew, and counted in rollout/diverged."
    )


def _what(row: broken.Broken) -> str:
    """Say which numbers were at fault."""
    parts = {"reward": row.reward, **network_files.named_leaves({"obs": row.obs})}
    bad = []
    for name, values in parts.items():
        if np.issubdtype(np.asarray(values).dtype, np.inexact):
            places = np.argwhere(~(np.abs(values) < 1e10)).tolist()
            for place in places[:3]:
                bad.append(f"{name}{place or ''} is {np.asarray(values)[tuple(place)]:.3g}")
    return ", ".join(bad[:6]) or "a number too large to learn from"


def _dump(program: Program, row: broken.Broken, file: Path) -> None:
    """Write everything that is known of the moment; arrays only."""
    arrays: dict[str, Any] = {
        f"before/{name}": leaf
        for name, leaf in network_files.named_leaves(program.env.brax_state(row.before)).items()
    }
    arrays |= {"action": row.action, "after/reward": row.reward}
    arrays |= network_files.named_leaves({"after": {"obs": row.obs}})
    file.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(file) as written:
        np.savez(written, allow_pickle=False, **{k: np.asarray(v) for k, v in arrays.items()})
