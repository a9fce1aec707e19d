"""Policy-gradient losses: arrays in, a scalar out."""

import chex
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


def clipped_surrogate(
    log_prob: Array, old_log_prob: Array, advantage: Array, clip: Array | float
) -> Array:
    """Return PPO's policy loss.

    −mean min(ρ A, clamp(ρ, 1 − ε, 1 + ε) A),   ρ = π(a|s) / π_old(a|s)
    """
    chex.assert_equal_shape([log_prob, old_log_prob, advantage])
    # Far outside the clip range the value does not matter, but an infinite ratio would make the
    # gradient of the whole minibatch NaN.
    ratio = jnp.exp(jnp.clip(log_prob - old_log_prob, -20.0, 20.0))
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))


def value_loss(value: Array, target: Array) -> Array:
    """Return the mean squared error, mean (V − target)²."""
    chex.assert_equal_shape([value, target])
    return jnp.mean(jnp.square(value - target))


def clipped_value_loss(value: Array, old_value: Array, target: Array, clip: Array | float) -> Array:
    """Return the pessimistic value loss: V may not gain from moving past `clip`.

    mean max((V − target)², (V_old + clamp(V − V_old, −ε, ε) − target)²)
    """
    chex.assert_equal_shape([value, old_value, target])
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.mean(jnp.maximum(jnp.square(value - target), jnp.square(near - target)))


def approx_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """Return the low-variance estimate of KL(π_old ‖ π): mean (ρ − 1) − log ρ, never negative."""
    log_ratio = log_prob - old_log_prob
    return jnp.mean(jnp.expm1(log_ratio) - log_ratio)


def clip_fraction(log_prob: Array, old_log_prob: Array, clip: Array | float) -> Array:
    """Return the fraction of samples whose ratio is outside [1 − ε, 1 + ε]."""
    ratio = jnp.exp(log_prob - old_log_prob)
    return jnp.mean((jnp.abs(ratio - 1.0) > clip).astype(jnp.float32))


def action_bound_loss(mean: Array, bound: float = 1.1) -> Array:
    """Return mean Σ_i max(|μ_i| − bound, 0)²: keeps an unbounded mean near the action range."""
    return jnp.mean(jnp.sum(jnp.square(jax.nn.relu(jnp.abs(mean) - bound)), axis=-1))


def l2_to_initial(params: PyTree, initial: PyTree) -> Array:
    """Return Σ (θ − θ_0)², over all parameters."""
    squares = jax.tree.map(lambda p, q: jnp.sum(jnp.square(p - q)), params, initial)
    return sum(jax.tree.leaves(squares), start=jnp.zeros(()))


def explained_variance(value: Array, target: Array) -> Array:
    """Return 1 − Var(target − V) / Var(target); 1 is perfect, 0 is no better than a constant."""
    spread = jnp.var(target)
    # The variance of a constant target may be tiny instead of 0, by rounding.
    varies = spread > 1e-10 * jnp.mean(jnp.square(target))
    return jnp.where(varies, 1.0 - jnp.var(target - value) / jnp.where(varies, spread, 1.0), 0.0)
