"""Recursions over rollouts: advantages (GAE, V-trace), λ-returns, running discounted returns."""

from collections.abc import Callable

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

    advantage = _scan_back(backwards, jnp.zeros_like(delta[0]), (delta, decay))
    return advantage, advantage + value


def lambda_returns(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
    lam: Array | float,
) -> Array:
    """Return the λ-returns of time-major [T, N] arrays.

        G_t = r_t + γ (1 − terminated_t) ((1 − λ_t) V(s'_t) + λ_t G_{t+1})

    λ_t is 0 where truncated and at the last step, else λ. V(s'_t) is the value of the true
    successor: a truncated step bootstraps from it, and nothing leaks in from the next episode.
    """
    arrays = [reward, next_value, terminated, truncated]
    chex.assert_rank(arrays, 2)
    chex.assert_equal_shape(arrays)
    ended = terminated | truncated

    def backwards(later: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
        reward_t, value_t, terminated_t, ended_t = step
        later = jnp.where(ended_t, value_t, (1.0 - lam) * value_t + lam * later)
        now = reward_t + gamma * jnp.where(terminated_t, 0.0, later)
        return now, now

    # After the last step there is nothing but its value.
    return _scan_back(backwards, next_value[-1], (reward, next_value, terminated, ended))


def _scan_back(step: Callable, last: Array, steps: tuple[Array, ...]) -> Array:
    """Scan from the last step of a rollout to the first; return what `step` says of each."""
    # On a GPU a step is a few small kernels, and the loop around it costs as much. A CPU gains
    # nothing by unrolling, and compiles longer.
    unroll = 32 if jax.default_backend() == "gpu" else 1
    return jax.lax.scan(step, last, steps, reverse=True, unroll=unroll)[1]


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
