"""The curriculum of start states, updated by the environment's hooks (`jaxrl.envs.hooks`).

`update_curriculum` is called after every cycle with its metrics; `update_curriculum_from_trials`
every --motion.resample-interval epochs, after every trial was played once.
"""

from typing import Any

import jax
import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.programs import Executor, Program
from jaxrl.types import PyTree, TrainState
from jaxrl.utils import processes, sharding


def is_due(config: TrainConfig, cycles: int) -> bool:
    """Tell whether an epoch ends here after which it changes.

    A last epoch that was cut short does not count: a longer run would not end one there.
    """
    every = config.motion.resample_interval * config.cycles
    return bool(every) and cycles % every == 0


def resample(
    program: Program,
    executor: Executor,
    state: TrainState,
    cycles: int,
    evaluated: list[Episodes] | None,
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the state after resampling, if it is due here, and the metrics of each member.

    Resampling plays trials of its own, so that settings of --eval do not change training. Where
    an evaluation has just played the very same ones (`evaluated`), those are taken.
    """
    if not program.follows_trials or not is_due(program.config, cycles):
        return state, [{} for _ in program.members or (program.config,)]
    if evaluated is None or not program.trials_equal_evaluations:
        params = program.policy_params(state.learner)
        played = executor.evaluate_trials(params, cycles, state.curriculum)
        evaluated = program.split(processes.fetch(played))
    state, values = update_from_trials(program, state, evaluated)
    return (executor.restart(state, cycles) if program.restarts else state), values


def update_from_trials(
    program: Program, state: TrainState, episodes: list[Episodes]
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the state with each member's curriculum after its trials, and the metrics."""
    return _replace(
        program, state, program.curriculum_hook("update_curriculum_from_trials"), episodes
    )


def after_cycle(
    program: Program, state: TrainState, metrics: list[dict[str, float]]
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the same after a cycle of training, if the environment's curriculum follows it."""
    hook = program.curriculum_hook("update_curriculum")
    return _replace(program, state, hook, metrics) if hook else (state, [{} for _ in metrics])


def _replace(
    program: Program,
    state: TrainState,
    hook: Any,
    results: list[Any],
) -> tuple[TrainState, list[dict[str, float]]]:
    before = program.split(processes.fetch(state.curriculum))
    changed = [hook(old, result) for old, result in zip(before, results, strict=True)]
    for old, (new, _) in zip(before, changed, strict=True):
        _check_alike(old, new)
    after = program.stack([new for new, _ in changed])
    placed = jax.tree.map(sharding.put_like, state.curriculum, after)
    values = [{f"curriculum/{k}": float(v) for k, v in metrics.items()} for _, metrics in changed]
    return state.replace(curriculum=placed), values


def _check_alike(old: PyTree, new: PyTree) -> None:
    """The compiled programs take nothing but other numbers."""
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise UserError("The environment must return a curriculum of the same structure.")
    for was, now in zip(
        *(map(np.shape, jax.tree.leaves(tree)) for tree in (old, new)), strict=True
    ):
        if now != was:
            raise UserError(
                f"The environment turned an array {was} of its curriculum into one {now}."
            )
