"""Recursions over rollouts: advantages (GAE, V-trace) and running discounted returns."""

import chex
import jax
import jax.numpy as jnp

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

    V(s'_t) is the value of the true successor: a truncated step bootstraps from it, and nothing
    leaks in from the next episode.
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
        # `where`, not a product: the next episode must not leak in, not even as 0 · NaN.
        advantage = delta_t + jnp.where(decay_t > 0, decay_t * advantage, 0.0)
        return advantage, advantage

    last, steps = jnp.zeros_like(delta[0]), (delta, decay)
    # On a GPU a step is a few small kernels, and the loop around it costs as much. A CPU gains
    # nothing by unrolling, and compiles longer.
    unroll = 32 if jax.default_backend() == "gpu" else 1
    _, advantage = jax.lax.scan(backwards, last, steps, reverse=True, unroll=unroll)
    return advantage, advantage + value


def discounted_returns(reward: Array, ended: Array, start: Array, *, gamma: Array | float) -> Array:
    """Return R_t = γ R_{t−1} + r_t of time-major [T, N] arrays; R restarts after each episode.

    Looks back, not ahead: these are the returns whose std VecNormalize divides rewards by.
    """
    chex.assert_rank([reward, ended], 2)
    chex.assert_equal_shape([reward, ended])

    def step(carry: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, ended_t = inputs
        now = carry * gamma + reward_t
        return jnp.where(ended_t, 0.0, now), now

    return jax.lax.scan(step, start, (reward, ended))[1]
