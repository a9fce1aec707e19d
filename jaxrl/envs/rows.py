"""Trees with one row for each environment."""

import jax
import jax.numpy as jnp

from jaxrl.envs import OBS_LIMIT
from jaxrl.types import Array, PyTree


def as_mask(mask: Array, leaf: Array) -> Array:
    """Give a mask [N] as many axes as a leaf [N, ...] has."""
    return mask.reshape(mask.shape + (1,) * (leaf.ndim - 1))


def length_of(tree: PyTree) -> int:
    """Return the number of rows of a tree."""
    return jax.tree.leaves(tree)[0].shape[0]


def merge_agents(tree: PyTree, agents: int | None) -> PyTree:
    """[N, agents, ...] -> [rows, ...]; unchanged without an agent axis (`agents` None)."""
    if not agents:
        return tree
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def split_agents(x: Array, agents: int | None) -> Array:
    """[rows, ...] -> [N, agents, ...]; unchanged without an agent axis (`agents` None)."""
    return x.reshape(-1, agents, *x.shape[1:]) if agents else x


def choose(mask: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Select per environment between two trees of [N, ...] arrays."""
    return jax.tree.map(lambda a, b: jnp.where(as_mask(mask, a), a, b), yes, no)


def all_finite(before: PyTree, after: PyTree, *others: Array) -> Array:
    """Return bool [N]: are observations before and after a step, and all other arrays, finite?

    Both observations are compared in one reduction, because this runs at every step.
    """
    rows = [_rows(jnp.isfinite(x)) for x in others if jnp.issubdtype(x.dtype, jnp.inexact)]
    for one, two in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if jnp.issubdtype(two.dtype, jnp.inexact):
            rows.append(_rows(_bounded(one) & _bounded(two)))
    return jnp.all(jnp.stack(rows), axis=0) if rows else jnp.ones(length_of(after), bool)


def zero_nonfinite(obs: PyTree) -> PyTree:
    """Replace every value that is non-finite or out of bounds by 0."""

    def clean(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return jnp.where(_bounded(leaf), leaf, jnp.zeros((), leaf.dtype))

    return jax.tree.map(clean, obs)


def _bounded(leaf: Array) -> Array:
    return jnp.abs(leaf) < OBS_LIMIT


def _rows(finite: Array) -> Array:
    return jnp.all(finite.reshape(finite.shape[0], -1), axis=1)
