"""Experience on the device: a ring of steps for every row, written in place.

A row is one environment's (or agent's) stream of steps, [rows, length, ...]. What is written is
written where the oldest steps lie, so the cost of writing does not depend on how much is kept.
Episodes lie in a row one after the other; `learning.episodes` knows where they begin and end.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array, Key, PyTree


class Transition(NamedTuple):
    """One step of one row, or many of them: any leading axes."""

    obs: PyTree
    action: Array
    reward: Array
    terminated: Array  # nothing follows: no bootstrap; a time-out is not one of these
    next_obs: PyTree  # the true successor


class Ring(struct.PyTreeNode):
    """The newest `length` steps of every row."""

    steps: PyTree  # Transition of [rows, length, ...]
    written: Array  # int32 [rows], steps ever written; the next goes to written % length


def init(example: PyTree, rows: int, length: int) -> Ring:
    """Return an empty ring for steps like `example`, a tree of shapes."""
    steps = jax.tree.map(lambda s: jnp.zeros((rows, length, *s.shape), s.dtype), example)
    return Ring(steps, jnp.zeros(rows, jnp.int32))


def length(ring: Ring) -> int:
    """Return how many steps each row keeps."""
    return jax.tree.leaves(ring.steps)[0].shape[1]


def insert(ring: Ring, steps: PyTree) -> Ring:
    """Write steps [T, rows, ...] over the oldest ones; T must divide the ring's length."""
    count = jax.tree.leaves(steps)[0].shape[0]
    if length(ring) % count:
        raise ValueError(f"a ring of {length(ring)} steps cannot be written {count} at a time")
    # All rows are written alike, so one start serves them all and the write is one slice.
    start = ring.written[0] % length(ring)

    def write(kept: Array, new: Array) -> Array:
        new = jnp.moveaxis(new, 0, 1).astype(kept.dtype)
        return jax.lax.dynamic_update_slice_in_dim(kept, new, start, axis=1)

    return Ring(jax.tree.map(write, ring.steps, steps), ring.written + count)


def take(tree: PyTree, row: Array, number: Array) -> PyTree:
    """Return the steps with these numbers, counted from the first ever written; [...] each."""

    def pick(kept: Array) -> Array:
        return kept[row, number % kept.shape[1]]

    return jax.tree.map(pick, tree)


def reorder(tree: PyTree, order: Array) -> PyTree:
    """Return rows whose place p holds what was at place `order[row, p]`."""

    def move(kept: Array) -> Array:
        # Row by row: there may not be room for a second ring.
        return jax.lax.fori_loop(
            0, len(order), lambda row, kept: kept.at[row].set(kept[row][order[row]]), kept
        )

    return jax.tree.map(move, tree)


def draw(key: Key, first: Array, end: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Draw rows and numbers of steps, each step of [first, end) of any row equally likely.

    Args:
      first, end: int32 [rows]; together they must hold at least one step.
    """
    sizes = jnp.maximum(end - first, 0)
    bounds = jnp.cumsum(sizes)
    place = jax.random.randint(key, shape, 0, jnp.maximum(bounds[-1], 1))
    row = jnp.searchsorted(bounds, place, side="right")
    row = jnp.minimum(row, len(sizes) - 1)
    return row, first[row] + place - (bounds[row] - sizes[row])


def kept(ring: Ring) -> tuple[Array, Array]:
    """Return the numbers [first, end) of the steps that are still there, per row."""
    return jnp.maximum(ring.written - length(ring), 0), ring.written
