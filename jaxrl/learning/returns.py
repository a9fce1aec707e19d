"""Running discounted returns, whose spread tells how large rewards are."""

import chex
import jax
import jax.numpy as jnp

from jaxrl.types import Array


def running_returns(reward: Array, ended: Array, start: Array, *, gamma: Array | float) -> Array:
    """Return R_t = γ R_{t−1} + r_t of time-major [T, N] arrays; an ending clears what follows it.

    Looks back, not ahead: these are the returns by which VecNormalize scales rewards.
    """
    chex.assert_rank([reward, ended], 2)
    chex.assert_equal_shape([reward, ended])

    def step(carried: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, ended_t = inputs
        now = carried * gamma + reward_t
        return jnp.where(ended_t, 0.0, now), now

    return jax.lax.scan(step, start, (reward, ended))[1]
