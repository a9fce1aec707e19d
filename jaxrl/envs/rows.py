"""Trees with one row for each environment."""

import jax
import jax.numpy as jnp

from jaxrl.envs.limits import OBS_LIMIT
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


def sane(before: PyTree, after: PyTree, *others: Array) -> Array:
    """Return [N]: are observations before and after a step, and all other arrays, finite?

    Both observations are compared in one reduction: this is done at every step.
    """
    rows = [_rows(jnp.isfinite(x)) for x in others if jnp.issubdtype(x.dtype, jnp.inexact)]
    for one, two in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if jnp.issubdtype(two.dtype, jnp.inexact):
            rows.append(_rows(_bounded(one) & _bounded(two)))
    return jnp.all(jnp.stack(rows), axis=0) if rows else jnp.ones(length_of(after), bool)


def cleaned(obs: PyTree) -> PyTree:
    """Put 0 in the place of every number that is non-finite or out of bounds."""

    def clean(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return jnp.where(_bounded(leaf), leaf, jnp.zeros((), leaf.dtype))

    return jax.tree.map(clean, obs)


def _bounded(leaf: Array) -> Array:
    return jnp.abs(leaf) < OBS_LIMIT


def _rows(fine: Array) -> Array:
    return jnp.all(fine.reshape(fine.shape[0], -1), axis=1)
