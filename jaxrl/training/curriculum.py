"""The curriculum of start states, updated by the environment's hooks (`jaxrl.envs.hooks`).

`update_curriculum` is called after every cycle with its metrics; `update_curriculum_from_trials`
when the environment's schedule says so, after every trial was played once.
"""

from collections.abc import Sequence

import jax
import numpy as np

from jaxrl.envs.hooks import CurriculumUpdate
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.programs import Executor, Program
from jaxrl.types import PyTree, TrainState
from jaxrl.utils import processes, sharding


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
    hooks = program.hooks
    update = hooks.update_curriculum_from_trials
    if update is None or not hooks.trial_schedule.is_due(program.config, cycles):
        return state, [{} for _ in program.members or (program.config,)]
    if evaluated is None or not program.trials_equal_evaluations:
        params = program.policy_params(state.learner)
        played = executor.evaluate_trials(params, cycles, state.curriculum)
        evaluated = program.split(processes.fetch(played))
    state, values = updated(program, state, update, evaluated)
    return (executor.restart(state, cycles) if hooks.shared_arrays else state), values


def after_cycle(
    program: Program, state: TrainState, metrics: list[dict[str, float]]
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the same after a cycle of training, if the environment's curriculum follows it."""
    update = program.hooks.update_curriculum
    return updated(program, state, update, metrics) if update else (state, [{} for _ in metrics])


def updated(
    program: Program, state: TrainState, update: CurriculumUpdate, results: Sequence[object]
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the state with each member's curriculum after its own results, and the metrics."""
    before = program.split(processes.fetch(state.curriculum))
    changed = [update(old, result) for old, result in zip(before, results, strict=True)]
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
