"""Apply one action for several environment steps."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxrl.envs.env_state import has_ended, typed_like
from jaxrl.types import Array

if TYPE_CHECKING:
    from brax.envs.base import State


def repeat_action(
    step: "Callable[[State, Array], State]", state: "State", action: Array, times: int
) -> "tuple[State, Array]":
    """Apply an action up to `times` steps, or until the episode ends.

    Returns the last state, with the sums of rewards and metrics, and the number of steps taken.
    """
    if times == 1:
        return step(state, action), jnp.ones((), jnp.int32)

    def once(carry, _):
        state, reward, metrics, steps, ended = carry
        after = typed_like(step(state, action), state)
        reward = reward + jnp.where(ended, 0.0, after.reward)
        metrics = {k: metrics[k] + jnp.where(ended, 0.0, v) for k, v in after.metrics.items()}
        state = jax.tree.map(lambda old, new: jnp.where(ended, old, new), state, after)
        steps = steps + ~ended
        return (state, reward, metrics, steps, ended | has_ended(state)), None

    metrics = {k: jnp.zeros((), jnp.float32) for k in state.metrics}
    reward = jnp.zeros(state.reward.shape, jnp.float32)
    start = (state, reward, metrics, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    (state, reward, metrics, steps, _), _ = jax.lax.scan(once, start, length=times)
    if "success" in metrics:  # the value at the end, not a sum
        metrics["success"] = state.metrics["success"]
    return dataclasses.replace(state, reward=reward, metrics=metrics), steps
