"""Sampling rows by priority, and the importance weights that correct for it.

The first axis of all arrays is a shard of rows, one per device: rows are sampled inside shards.
"""

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key


def priorities(advantage: Array, alpha: Array | float) -> Array:
    """Return each row's chance [shards, rows] from advantages [T, shards, rows].

    p_i ∝ (Σ_t |A_it|)^α + 1e-6. With α = 0 all are equal.
    """
    size = jnp.sum(jnp.abs(advantage), axis=0)
    weight = jnp.power(size, alpha) + 1e-6
    return weight / jnp.sum(weight, axis=1, keepdims=True)


def sample_rows(keys: Key, chance: Array, number: int) -> Array:
    """Sample `number` different rows from each shard: [shards, number]."""

    def sample(key: Key, chance: Array) -> Array:
        # The largest of log p + Gumbel noise are a sample without replacement (Vieira, 2014).
        noisy = jnp.log(chance) + jax.random.gumbel(key, chance.shape)
        return jax.lax.top_k(noisy, number)[1]

    return jax.vmap(sample)(keys, chance)


def beta(beta0: Array | float, alpha: Array | float, progress: Array | float) -> Array:
    """Return the exponent of the weights, β0 + (1 − β0) α progress."""
    return beta0 + (1.0 - beta0) * alpha * jnp.asarray(progress)


def importance(chance: Array, rows: Array, exponent: Array | float) -> Array:
    """Return (rows · p_i)^−β of the sampled rows [shards, R]."""
    sampled = jnp.take_along_axis(chance, rows, axis=1)
    return jnp.power(chance.shape[1] * sampled, -exponent)
