"""Sampling rows by priority, and the importance weights that correct for it.

The first axis of all arrays is a shard of rows, one per device: rows are sampled inside shards.
"""

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key


def priorities(advantage: Array, alpha: Array | float) -> Array:
    """Return each row's probability [shards, rows] from advantages [T, shards, rows].

    p_i ∝ (Σ_t |A_it|)^α + 1e-6. With α = 0 all are equal.
    """
    size = jnp.sum(jnp.abs(advantage), axis=0)
    weight = jnp.power(size, alpha) + 1e-6
    return weight / jnp.sum(weight, axis=1, keepdims=True)


def sample_rows(keys: Key, probs: Array, number: int) -> Array:
    """Sample `number` different rows from each shard: [shards, number]."""

    def sample(key: Key, probs: Array) -> Array:
        # The largest of log p + Gumbel noise are a sample without replacement (Vieira, 2014).
        noisy = jnp.log(probs) + jax.random.gumbel(key, probs.shape)
        return jax.lax.top_k(noisy, number)[1]

    return jax.vmap(sample)(keys, probs)


def beta(beta0: Array | float, alpha: Array | float, progress: Array | float) -> Array:
    """Return the exponent of the weights, β0 + (1 − β0) α progress."""
    return beta0 + (1.0 - beta0) * alpha * jnp.asarray(progress)


def importance(probs: Array, rows: Array, exponent: Array | float) -> Array:
    """Return (rows · p_i)^−β of the sampled rows [shards, R]."""
    sampled = jnp.take_along_axis(probs, rows, axis=1)
    return jnp.power(probs.shape[1] * sampled, -exponent)
