"""Minibatches of whole environments: rows stay in time order, so memory and GAE stay valid."""

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key, PyTree


def shuffled_rows(key: Key, num_rows: int, num_minibatches: int, num_shards: int = 1) -> Array:
    """Deal every row exactly once: indices [num_minibatches, blocks, rows per block].

    Rows are shuffled inside each of `num_shards` equal blocks, and every minibatch takes the same
    share of each. With one block per device no row ever has to travel to another device.
    """
    if num_rows % (num_shards * num_minibatches):
        raise ValueError(
            f"{num_rows} rows cannot be dealt to {num_minibatches} × {num_shards} parts"
        )
    # Sorting random numbers shuffles; equal ones, which would not be, are rare among 2³² (JAX's
    # own permutation sorts twice for them).
    order = jnp.argsort(jax.random.bits(key, (num_shards, num_rows // num_shards), jnp.uint32))
    return jnp.moveaxis(order.reshape(num_shards, num_minibatches, -1), 1, 0)


def take_rows(batch: PyTree, rows: Array) -> PyTree:
    """Pick rows [blocks, R] along axis 1 of time-major leaves: [T, N, ...] -> [T, B·R, ...]."""
    num_shards = rows.shape[0]

    def take(x: Array) -> Array:
        parts = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
        picked = jax.vmap(lambda part, index: part[:, index], in_axes=(1, 0), out_axes=1)(
            parts, rows
        )
        return picked.reshape(x.shape[0], -1, *x.shape[2:])

    return jax.tree.map(take, batch)


def deal(batch: PyTree, rows: Array) -> PyTree:
    """Lay out all minibatches of one pass, one after the other: [minibatches, T, rows, ...].

    Copying the batch once is cheaper than gathering from it in every gradient step.
    """
    return jax.vmap(take_rows, in_axes=(None, 0))(batch, rows)


def put_rows(batch: PyTree, rows: Array, part: PyTree) -> PyTree:
    """Write what `take_rows` took back to its place."""
    num_shards = rows.shape[0]

    def put(x: Array, new: Array) -> Array:
        wide = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
        new = new.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
        write = jax.vmap(lambda part, index, new: part.at[:, index].set(new), (1, 0, 1), 1)
        return write(wide, rows, new).reshape(x.shape)

    return jax.tree.map(put, batch, part)
