"""A replay buffer on the device: a ring of steps for every row, written in place.

A row is the stream of steps of one environment (or agent), [rows, length, ...]. New steps overwrite
the oldest ones, so the cost of writing does not depend on the size. Steps are numbered from the
first ever written. Episodes lie in a row one after the other; `learning.episode_index` finds them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array, Key, PyTree


class Transition(NamedTuple):
    """One step of one row, or many: any leading axes."""

    obs: PyTree
    action: Array
    reward: Array
    terminated: Array  # no bootstrap; False for a truncated step
    next_obs: PyTree  # the true successor
    truncated: PyTree = ()  # stored for n-step returns only
    steps: PyTree = ()  # whose rewards an n-step return adds up; (): one


class Ring(struct.PyTreeNode):
    """The newest `length` steps of every row."""

    steps: PyTree  # Transition of [rows, length, ...]
    written: Array  # int32 [rows], steps ever written; the next goes to written % length


def init(example: PyTree, rows: int, length: int) -> Ring:
    """Return an empty ring for steps like `example`, a tree of shapes."""
    steps = jax.tree.map(lambda s: jnp.zeros((rows, length, *s.shape), s.dtype), example)
    return Ring(steps, jnp.zeros(rows, jnp.int32))


def length(ring: Ring) -> int:
    """Return how many steps each row holds."""
    return jax.tree.leaves(ring.steps)[0].shape[1]


def add(ring: Ring, steps: PyTree) -> Ring:
    """Write steps [T, rows, ...] over the oldest ones; T must divide the ring's length."""
    count = jax.tree.leaves(steps)[0].shape[0]
    if length(ring) % count:
        raise ValueError(f"a ring of {length(ring)} steps cannot be written {count} at a time")
    # All rows are written alike, so one start serves them all and the write is one slice.
    start = ring.written[0] % length(ring)

    def write(old: Array, new: Array) -> Array:
        new = jnp.moveaxis(new, 0, 1).astype(old.dtype)
        return jax.lax.dynamic_update_slice_in_dim(old, new, start, axis=1)

    return Ring(jax.tree.map(write, ring.steps, steps), ring.written + count)


def gather(tree: PyTree, row: Array, number: Array) -> PyTree:
    """Return the steps with these rows and numbers, [...] each."""

    def pick(leaf: Array) -> Array:
        return leaf[row, number % leaf.shape[1]]

    return jax.tree.map(pick, tree)


def reorder(tree: PyTree, order: Array) -> PyTree:
    """Return rows whose place p holds what was at place `order[row, p]`."""

    def move(leaf: Array) -> Array:
        # Row by row: there may not be memory for a second ring.
        return jax.lax.fori_loop(
            0, len(order), lambda row, leaf: leaf.at[row].set(leaf[row][order[row]]), leaf
        )

    return jax.tree.map(move, tree)


def sample(key: Key, first: Array, end: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Sample rows and numbers of steps, each step of [first, end) of any row equally likely.

    Args:
      first, end: int32 [rows]; together they must hold at least one step.
    """
    sizes = jnp.maximum(end - first, 0)
    bounds = jnp.cumsum(sizes)
    place = jax.random.randint(key, shape, 0, jnp.maximum(bounds[-1], 1))
    row = jnp.searchsorted(bounds, place, side="right")
    row = jnp.minimum(row, len(sizes) - 1)
    return row, first[row] + place - (bounds[row] - sizes[row])


def stored_range(ring: Ring) -> tuple[Array, Array]:
    """Return the numbers [first, end) of the steps in the ring, per row."""
    return jnp.maximum(ring.written - length(ring), 0), ring.written
