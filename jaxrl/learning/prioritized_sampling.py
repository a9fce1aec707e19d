"""Drawing rows by priority, and weights that make up for it.

The first axis of all arrays is a block of rows, one per device: rows are drawn inside blocks.
"""

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key


def priorities(advantage: Array, alpha: Array | float) -> Array:
    """Return each row's chance [blocks, rows] from advantages [T, blocks, rows].

    p_i ∝ (Σ_t |A_it|)^α + 1e-6. With α = 0 all are equal.
    """
    size = jnp.sum(jnp.abs(advantage), axis=0)
    weight = jnp.power(size, alpha) + 1e-6
    return weight / jnp.sum(weight, axis=1, keepdims=True)


def draw_rows(keys: Key, chance: Array, number: int) -> Array:
    """Draw `number` different rows from each block: [blocks, number]."""

    def draw(key: Key, chance: Array) -> Array:
        # The largest of log p + Gumbel noise are a draw without replacement (Vieira, 2014).
        noisy = jnp.log(chance) + jax.random.gumbel(key, chance.shape)
        return jax.lax.top_k(noisy, number)[1]

    return jax.vmap(draw)(keys, chance)


def beta(beta0: Array | float, alpha: Array | float, progress: Array | float) -> Array:
    """Return the exponent of the weights: from β0 towards 1, as far as α asks for."""
    return beta0 + (1.0 - beta0) * alpha * jnp.asarray(progress)


def importance(chance: Array, rows: Array, exponent: Array | float) -> Array:
    """Return (rows · p_i)^−β of the rows [blocks, R] that were drawn."""
    drawn = jnp.take_along_axis(chance, rows, axis=1)
    return jnp.power(chance.shape[1] * drawn, -exponent)
