"""Minibatches of whole rows: each stays in time order, so carries and GAE stay valid."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key, Mean, Metrics, PyTree


def shuffled_rows(key: Key, num_rows: int, num_minibatches: int, num_shards: int = 1) -> Array:
    """Assign every row to one minibatch: indices [num_minibatches, shards, rows per shard].

    Rows are shuffled inside each of `num_shards` equal shards, and every minibatch takes as many
    from each. With one shard per device no row is moved to another device.
    """
    if num_rows % (num_shards * num_minibatches):
        raise ValueError(
            f"{num_rows} rows cannot be split into {num_minibatches} × {num_shards} parts"
        )
    # Sorting random numbers shuffles; ties are rare among 2³² (for them JAX's own permutation sorts
    # twice).
    order = jnp.argsort(jax.random.bits(key, (num_shards, num_rows // num_shards), jnp.uint32))
    return jnp.moveaxis(order.reshape(num_shards, num_minibatches, -1), 1, 0)


def gather_rows(batch: PyTree, rows: Array) -> PyTree:
    """Gather rows [shards, R] of time-major leaves: [T, N, ...] -> [T, shards · R, ...]."""
    num_shards = rows.shape[0]

    def gather(x: Array) -> Array:
        parts = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
        picked = jax.vmap(lambda part, index: part[:, index], in_axes=(1, 0), out_axes=1)(
            parts, rows
        )
        return picked.reshape(x.shape[0], -1, *x.shape[2:])

    return jax.tree.map(gather, batch)


def gather_minibatches(batch: PyTree, rows: Array) -> PyTree:
    """Gather rows [M, shards, R] for all M minibatches of an epoch: [M, T, shards · R, ...].

    Copying the batch once is cheaper than gathering from it in every gradient step.
    """
    return jax.vmap(gather_rows, in_axes=(None, 0))(batch, rows)


def scatter_rows(batch: PyTree, rows: Array, part: PyTree) -> PyTree:
    """Write rows back to where `gather_rows` took them from."""
    num_shards = rows.shape[0]

    def scatter(x: Array, new: Array) -> Array:
        wide = x.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
        new = new.reshape(x.shape[0], num_shards, -1, *x.shape[2:])
        write = jax.vmap(lambda part, index, new: part.at[:, index].set(new), (1, 0, 1), 1)
        return write(wide, rows, new).reshape(x.shape)

    return jax.tree.map(scatter, batch, part)


def scan_updates(update: Callable, start: PyTree, batches: PyTree) -> tuple[PyTree, Metrics]:
    """Scan `update` over batches; return the last state and the mean of each metric.

    The metrics of a gradient step are one vector: one kernel instead of one for each.
    """
    names: list[str] = []

    def one(state: PyTree, batch: PyTree) -> tuple[PyTree, Array]:
        state, metrics = update(state, batch)
        names[:] = sorted(metrics)
        return state, jnp.stack([metrics[name].total for name in names])

    end, values = jax.lax.scan(one, start, batches)
    count, sums = jnp.asarray(len(values), jnp.float32), jnp.sum(values, axis=0)
    return end, {name: Mean(sums[i], count) for i, name in enumerate(names)}
