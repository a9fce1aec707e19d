"""Generalised advantage estimation, with time-outs told apart from endings."""

import chex
import jax
import jax.numpy as jnp

from jaxrl.learning import turns
from jaxrl.types import Array


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
    lam: Array | float,
    rho: Array | float = 1.0,
    c: Array | float = 1.0,
) -> tuple[Array, Array]:
    """Return advantages and value targets (λ-returns) of time-major [T, N] arrays.

        δ_t = ρ_t (r_t + γ (1 − terminated_t) V(s'_t) − V(s_t))
        A_t = δ_t + γ λ c_t (1 − terminated_t) (1 − truncated_t) A_{t+1},   A_T = 0
        target_t = A_t + V(s_t)

    V(s'_t) is the value of the true successor, so a truncated step bootstraps from where the
    episode really was, while nothing leaks in from the episode that follows.
    With clipped probability ratios as ρ and c, λ = 1 is V-trace; both are 1 in plain GAE.
    References: Schulman et al., 2016; Espeholt et al., 2018.
    """
    arrays = [reward, value, next_value, terminated, truncated]
    chex.assert_rank(arrays, 2)
    chex.assert_equal_shape(arrays)
    alive = 1.0 - terminated.astype(value.dtype)
    same_episode = alive * (1.0 - truncated.astype(value.dtype))
    delta = rho * (reward + gamma * jnp.where(terminated, 0.0, next_value) - value)
    decay = gamma * lam * c * same_episode

    def backwards(advantage, step):
        delta_t, decay_t = step
        # `where`, not a product: what follows an ending must not leak, not even as 0 · NaN.
        advantage = delta_t + jnp.where(decay_t > 0, decay_t * advantage, 0.0)
        return advantage, advantage

    last, steps = jnp.zeros_like(delta[0]), (delta, decay)
    _, advantage = jax.lax.scan(backwards, last, steps, reverse=True, unroll=turns.on_gpu(32))
    return advantage, advantage + value
