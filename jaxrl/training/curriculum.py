"""The curriculum of start states, updated by the environment's hooks (`jaxrl.envs.hooks`).

`update_curriculum` is called after every cycle with its metrics; `update_curriculum_from_trials`
every --motion.resample-interval epochs, after every trial was played once.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.programs.program import Program, follows_training, goes_by_trials
from jaxrl.types import PyTree, TrainState


def is_due(config: TrainConfig, cycles: int) -> bool:
    """Tell whether an epoch ends here after which it changes.

    A last epoch that was cut short does not count: a longer run would not end one there.
    """
    every = config.motion.resample_interval * config.cycles
    return bool(every) and cycles % every == 0


def resampled(
    program: Program,
    programs: Any,
    state: TrainState,
    cycles: int,
    evaluated: list[Episodes] | None,
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the state after resampling, if it is due here, and what to log of each member.

    Resampling plays trials of its own, so that settings of --eval do not change training. Where
    an evaluation has just played the very same ones (`evaluated`), those are taken.
    """
    if not goes_by_trials(program) or not is_due(program.config, cycles):
        return state, [{} for _ in program.members or (program.config,)]
    if evaluated is None or not _same_trials(program):
        params = program.algorithm.policy_params(state.learner)
        evaluated = program.each(jax.device_get(programs.trials(params, cycles)))
    return updated(program, state, evaluated)


def _same_trials(program: Program) -> bool:
    """Tell whether evaluations play what resampling plays: no random number enters either."""
    chosen = program.config.eval.deterministic, program.config.motion.resample_deterministic
    return all(chosen) and not program.env.template.key_leaves


def updated(
    program: Program, state: TrainState, episodes: list[Episodes]
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the state with the curriculum of each member that follows, and what to log of it."""
    return _replaced(program, state, program.env.env.update_curriculum_from_trials, episodes)


def after_cycle(
    program: Program, state: TrainState, metrics: list[dict[str, float]]
) -> tuple[TrainState, list[dict[str, float]]]:
    """Return the same after a cycle of training, if the environment goes by that."""
    if not follows_training(program):
        return state, [{} for _ in metrics]
    return _replaced(program, state, program.env.env.update_curriculum, metrics)


def _replaced(
    program: Program,
    state: TrainState,
    follow: Callable[[PyTree, Any], tuple[PyTree, dict]],
    seen: list[Any],
) -> tuple[TrainState, list[dict[str, float]]]:
    before = program.each(jax.device_get(state.curriculum))
    followed = [follow(old, known) for old, known in zip(before, seen, strict=True)]
    for old, (new, _) in zip(before, followed, strict=True):
        _check_alike(old, new)
    after = program.together([new for new, _ in followed])
    placed = jax.tree.map(_placed, state.curriculum, after)
    values = [{f"curriculum/{k}": float(v) for k, v in noted.items()} for _, noted in followed]
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


def _placed(was: jax.Array, now: Any) -> jax.Array:
    """Put new numbers where the old ones are; the next cycle uses them up, so they are copied."""
    return jax.device_put(np.asarray(now).astype(was.dtype), was.sharding, may_alias=False)
