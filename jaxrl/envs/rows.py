"""Trees with one row for each environment."""

import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


def as_mask(mask: Array, leaf: Array) -> Array:
    """Give a mask [N] as many axes as a leaf [N, ...] has."""
    return mask.reshape(mask.shape + (1,) * (leaf.ndim - 1))


def length_of(tree: PyTree) -> int:
    """Return the number of rows of a tree."""
    return jax.tree.leaves(tree)[0].shape[0]


def choose(mask: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Pick per environment between two trees of [N, ...] arrays."""
    return jax.tree.map(lambda a, b: jnp.where(as_mask(mask, a), a, b), yes, no)


def sane(obs: PyTree, reward: Array) -> Array:
    """Return [N]: can the learner bear what it would see? Physics passes 1e10 on its way to NaN."""
    rows = [jnp.all(jnp.isfinite(reward).reshape(reward.shape[0], -1), axis=1)]
    for leaf in jax.tree.leaves(obs):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            rows.append(jnp.all((jnp.abs(leaf) < 1e10).reshape(leaf.shape[0], -1), axis=1))
    return jnp.all(jnp.stack(rows), axis=0)
