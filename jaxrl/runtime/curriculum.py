"""What start states are drawn by, changed by what training or evaluation has shown.

An environment with a curriculum may offer

    curriculum_after(curriculum, metrics) -> (curriculum, values to log)

which is called after every cycle with the means of its log, and, if it has trials,

    next_curriculum(curriculum, episodes) -> (curriculum, values to log)

which is called at the end of epochs, after every trial was played once. Both run on the host, with
host arrays.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.runtime.evaluation import Episodes
from jaxrl.runtime.program import Program
from jaxrl.types import PyTree, TrainState


def changes(program: Program) -> bool:
    """Tell whether evaluations change what start states are drawn by."""
    return _offers(program, "next_curriculum") and bool(program.env.template.trials)


def _offers(program: Program, name: str) -> bool:
    template = getattr(program.env, "template", None)  # others than ours have none
    if template is None or not jax.tree.leaves(template.curriculum):
        return False
    return hasattr(program.env.env, name)


def is_due(config: TrainConfig, cycles: int) -> bool:
    """Tell whether an epoch ends here after which it changes.

    A last epoch that was cut short does not count: a longer run would not end one there.
    """
    every = config.motion.resample_interval * config.cycles
    return bool(every) and cycles % every == 0


def updated(
    program: Program, state: TrainState, episodes: Episodes
) -> tuple[TrainState, dict[str, float]]:
    """Return the state with the curriculum that follows, and what to log of it."""
    return _replaced(state, program.env.env.next_curriculum, episodes)


def after_cycle(
    program: Program, state: TrainState, metrics: dict[str, float]
) -> tuple[TrainState, dict[str, float]]:
    """Return the same after a cycle of training, if the environment goes by that."""
    if not _offers(program, "curriculum_after"):
        return state, {}
    return _replaced(state, program.env.env.curriculum_after, metrics)


def _replaced(
    state: TrainState, follow: Callable[[PyTree, Any], tuple[PyTree, dict]], seen: Any
) -> tuple[TrainState, dict[str, float]]:
    after, values = follow(jax.device_get(state.curriculum), seen)
    placed = _like(state.curriculum, after)
    return state.replace(curriculum=placed), {
        f"curriculum/{k}": float(v) for k, v in values.items()
    }


def _like(old: PyTree, new: PyTree) -> PyTree:
    """Put new numbers where the old ones are: the compiled programs take no others."""
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise UserError("next_curriculum must return what it was given, with other numbers.")

    def place(was: jax.Array, now: Any) -> jax.Array:
        now = np.asarray(now)
        if now.shape != was.shape:
            raise UserError(f"next_curriculum turned an array {was.shape} into one {now.shape}.")
        # The next cycle uses the state up, so it must own its memory.
        return jax.device_put(now.astype(was.dtype), was.sharding, may_alias=False)

    return jax.tree.map(place, old, new)
