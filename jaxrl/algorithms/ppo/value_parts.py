"""In how many parts the values of a rollout are computed: all rows at once may not fit."""

import math

import jax
import jax.numpy as jnp

from jaxrl.config import NetworkConfig, PPOConfig
from jaxrl.networks import cnn
from jaxrl.networks.actor_critic import rnn_of
from jaxrl.networks.mlp import layer_widths
from jaxrl.networks.recurrent import GATES
from jaxrl.types import EnvSpec, PyTree

_BYTES = 2**31  # of a part, by default: more parts are slower on a GPU


def num_bytes(ppo: PPOConfig, network: NetworkConfig, spec: EnvSpec, rows: int) -> int:
    """Return the bytes that the critic holds at once: its input, and its widest layer.

    Tokens become one-hot vectors. A recurrent critic holds the steps of one segment.
    """
    gates = GATES.get(rnn_of(network, "critic"), 0) * network.rnn_size
    steps = ppo.horizon if gates else ppo.rollout_length
    layers = layer_widths(network.critic_hidden, network.residual_blocks)
    width = max([*layers, *cnn.layer_sizes(spec.obs), gates], default=0)
    both = 2  # values of each step's observation and of its successor
    return both * 4 * rows * steps * (width + input_width(spec))


def input_width(spec: EnvSpec) -> int:
    """Return the numbers that a network reads of an observation; tokens are one-hot."""
    if spec.tokens:
        return math.prod(spec.obs.shape[:-1]) * sum(spec.tokens)
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(spec.obs))


def choose(ppo: PPOConfig, network: NetworkConfig, spec: EnvSpec, rows: int, shards: int) -> int:
    """Return --ppo.value-parts; where it is None, as few parts as need about 2 GiB each.

    Each part has as many rows of every shard. None has fewer rows than a minibatch: gradients
    would need more memory then.
    """
    least = ppo.value_parts or math.ceil(num_bytes(ppo, network, spec, rows) / _BYTES)
    least = least if ppo.value_parts else min(least, ppo.num_minibatches * ppo.accumulate)
    per_shard = rows // shards
    return next(n for n in range(min(least, per_shard), per_shard + 1) if per_shard % n == 0)


def split_rows(tree: PyTree, parts: int, shards: int, axis: int) -> PyTree:
    """Split the rows of `axis` into parts, a leading axis, each with rows of every shard."""

    def split(x: jax.Array) -> jax.Array:
        lead, rest = x.shape[:axis], x.shape[axis + 1 :]
        wide = x.reshape(*lead, shards, parts, -1, *rest)
        return jnp.moveaxis(wide, axis + 1, 0).reshape(parts, *lead, -1, *rest)

    return jax.tree.map(split, tree)


def merge_rows(tree: PyTree, shards: int, axis: int) -> PyTree:
    """Undo `split_rows`."""

    def merge(x: jax.Array) -> jax.Array:
        parts, lead, rest = x.shape[0], x.shape[1 : axis + 1], x.shape[axis + 2 :]
        wide = x.reshape(parts, *lead, shards, -1, *rest)
        return jnp.moveaxis(wide, 0, axis + 1).reshape(*lead, -1, *rest)

    return jax.tree.map(merge, tree)
