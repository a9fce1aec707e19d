"""Segments: a rollout cut into rows of equal length, which minibatches are made of.

T steps of N rows become T/H · N rows of H steps. A row's segments stay neighbours, so that the
rows of one device stay on it.
"""

import jax
import jax.numpy as jnp

from jaxrl.types import PyTree


def split_time(tree: PyTree, horizon: int) -> PyTree:
    """[T, ...] -> [T/H, H, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, horizon, *x.shape[1:]), tree)


def merge_time(tree: PyTree) -> PyTree:
    """[T/H, H, ...] -> [T, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def cut(tree: PyTree, horizon: int) -> PyTree:
    """[T, N, ...] -> [H, N · T/H, ...]."""

    def one(x: jax.Array) -> jax.Array:
        parts = x.reshape(-1, horizon, *x.shape[1:])  # [P, H, N, ...]
        return jnp.moveaxis(parts, 0, 2).reshape(horizon, -1, *x.shape[2:])

    return jax.tree.map(one, tree)


def join(tree: PyTree, length: int) -> PyTree:
    """Undo `cut`: [H, N · T/H, ...] -> [T, N, ...], where `length` is T."""

    def one(x: jax.Array) -> jax.Array:
        horizon = x.shape[0]
        rows = x.reshape(horizon, -1, length // horizon, *x.shape[2:])  # [H, N, P, ...]
        return jnp.moveaxis(rows, 2, 0).reshape(length, -1, *x.shape[2:])

    return jax.tree.map(one, tree)


def cut_starts(tree: PyTree) -> PyTree:
    """Cut what each segment starts with: [T/H, N, ...] -> [1, N · T/H, ...]."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(1, -1, *x.shape[2:]), tree)
