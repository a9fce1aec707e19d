"""Values in parts: how many, and which rows are in each."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.ppo import value_parts
from jaxrl.config import presets
from jaxrl.networks import cnn
from jaxrl.networks.cnn import CNN, ImageObs
from jaxrl.networks.mlp import layer_widths
from jaxrl.types import ActionSpec, EnvSpec


@pytest.mark.parametrize("axis, shape", [(0, (12, 3)), (1, (2, 12)), (1, (2, 12, 3))])
@pytest.mark.parametrize("shards", [1, 2])
def test_each_part_has_rows_of_every_shard(axis, shape, shards):
    x = jnp.arange(np.prod(shape)).reshape(shape)
    split = value_parts.split_rows(x, 3, shards, axis)
    assert split.shape == (3, *shape[:axis], 4, *shape[axis + 1 :])
    np.testing.assert_array_equal(value_parts.merge_rows(split, shards, axis), x)
    if shards == 2:  # rows 0 to 5 are on the first device
        rows = [0, 1, 6, 7]
        np.testing.assert_array_equal(split[0], np.take(x, rows, axis))


def test_number_of_parts_bounds_memory(monkeypatch):
    config = presets.get("arena")
    spec = EnvSpec(jax.ShapeDtypeStruct((49, 3), jnp.uint8), ActionSpec(7, True), (8, 4, 5))
    arguments = (config.network, spec, 8192, 1)
    size = value_parts.num_bytes(config.ppo, *arguments[:3])
    # Both observations of a step: one-hot tokens, and the gates of 128 LSTM cells.
    assert size == 2 * 4 * 8192 * 64 * (49 * (8 + 4 + 5) + 4 * 128)
    for limit, parts in ((size, 1), (size - 1, 2), (size // 5, 8), (1, 32)):
        monkeypatch.setattr(value_parts, "_BYTES", limit)
        assert value_parts.choose(config.ppo, *arguments) == parts
    fixed = replace(config.ppo, value_parts=100)
    assert value_parts.choose(fixed, *arguments) == 128  # the next divisor of the rows
    assert value_parts.choose(fixed, config.network, spec, 8, 2) == 4  # one row of each shard


def test_residual_blocks_are_wider_than_their_input():
    config = presets.get("ant")
    network = replace(config.network, critic_hidden=(32, 64), residual_blocks=2)
    spec = EnvSpec(jax.ShapeDtypeStruct((27,), jnp.float32), ActionSpec(8, False))
    size = value_parts.num_bytes(config.ppo, network, spec, 8)
    assert size == 2 * 4 * 8 * config.ppo.rollout_length * (4 * 64 + 27)
    assert layer_widths((32, 64), 2) == [32, 64, 256, 64, 256, 64]
    assert layer_widths((32, 64), 0) == [32, 64]


def test_convolutions_count():
    config = presets.get("ant")
    spec = EnvSpec(jax.ShapeDtypeStruct((84, 84, 3), jnp.uint8), ActionSpec(4, True))
    made = jax.eval_shape(
        lambda image: CNN().init_with_output(
            jax.random.key(0),
            ImageObs((image,), jnp.zeros((0,))),
            capture_intermediates=True,
            mutable=["params", "intermediates"],
        )[1]["intermediates"],
        spec.obs,
    )
    layers = [made[name] for name in ("Conv_0", "Conv_1", "Conv_2", "Dense_0")]
    assert cnn.layer_sizes(spec.obs) == [leaf.size for leaf in jax.tree.leaves(layers)]
    size = value_parts.num_bytes(config.ppo, config.network, spec, 8)
    assert size == 2 * 4 * 8 * config.ppo.rollout_length * (21 * 21 * 32 + 84 * 84 * 3)
