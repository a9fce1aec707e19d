"""Image observations: detection, differences of images, and networks that read them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic, cnn, embedding_critic, q_network, reward_network
from jaxrl.types import ActionSpec, EnvSpec

IMAGE = jax.ShapeDtypeStruct((10, 6, 3), jnp.uint8)
VECTOR = jax.ShapeDtypeStruct((4,), jnp.float32)
NETWORK = NetworkConfig((8,), (8,))


def _image(seed, *lead):
    random = np.random.default_rng(seed)
    return jnp.asarray(random.integers(0, 256, (*lead, 10, 6, 3)), jnp.uint8)


def test_uint8_height_width_channels_is_an_image():
    assert cnn.is_image(IMAGE)
    assert not cnn.is_image(VECTOR)
    assert not cnn.is_image(jax.ShapeDtypeStruct((49, 3), jnp.uint8))  # tokens


def test_image_change_is_scaled_and_signed():
    before = cnn.ImageObs((jnp.full((1, 2, 2, 1), 51, jnp.uint8),), jnp.array([[3.0]]))
    after = cnn.ImageObs((jnp.full((1, 2, 2, 1), 102, jnp.uint8),), jnp.array([[1.0]]))
    changed = cnn.image_change(before, after)
    np.testing.assert_allclose(changed.images[0][..., 0], 0.2, rtol=1e-6)
    np.testing.assert_allclose(changed.images[0][..., 1], -0.2, rtol=1e-5)
    np.testing.assert_allclose(changed.vector, [[3.0, 2.0]])


def test_uint8_vector_change_is_signed():
    """0 − 1 is −1, as for the same numbers in float32, also in a reward network."""
    before, after = jnp.array([[0, 5, 9]], jnp.uint8), jnp.array([[1, 5, 7]], jnp.uint8)
    changed = cnn.image_change(cnn.ImageObs((), before), cnn.ImageObs((), after)).vector
    np.testing.assert_array_equal(changed, [[0, 5, 9, -1, 0, 2]])

    @jax.jit
    def predict(before, after):
        spec = EnvSpec(jax.ShapeDtypeStruct((3,), before.dtype), ActionSpec(1, False))
        network = reward_network.build(spec, NETWORK)
        return network.apply(network.init(jax.random.key(0)), before, jnp.zeros((1, 1)), after)

    numbers = predict(before.astype(jnp.float32), after.astype(jnp.float32))
    np.testing.assert_allclose(predict(before, after), numbers, rtol=1e-6)


@pytest.mark.parametrize(
    "obs, discrete", [(IMAGE, True), ({"camera": IMAGE, "joints": VECTOR}, False)]
)
def test_all_networks_read_images_and_vectors(obs, discrete):
    spec = EnvSpec(obs, ActionSpec(2, discrete))
    networks = actor_critic.build(spec, NETWORK)
    critic, reward = (
        q_network.build(spec, NETWORK, norm="layer"),
        reward_network.build(spec, NETWORK),
    )
    embedding = embedding_critic.build(spec, NETWORK, (-1.0, 1.0, 3))

    def observe(seed):
        joints = jax.random.normal(jax.random.key(seed), (5, 4))
        image = _image(seed, 5)
        return {"camera": image, "joints": joints} if isinstance(obs, dict) else image

    @jax.jit
    def values(current, next_obs):
        keys = jax.random.split(jax.random.key(0), 5)
        params = {"actor": networks.actor.init(keys[0]), "critic": networks.critic.init(keys[1])}
        action = jnp.zeros(5, jnp.int32) if discrete else jnp.zeros((5, 2))
        output, value = networks.forward(params, current, {"actor": (), "critic": ()}, None)
        q = critic.apply(critic.init(keys[2]), current, action)
        predicted = reward.apply(reward.init(keys[3]), current, action, next_obs)
        if discrete:
            return output, value, q, predicted
        logits = embedding.apply(embedding.init(keys[4]), current, action).logits
        return output, value, q, predicted, logits

    current, next_obs, other = observe(0), observe(1), observe(2)
    found = values(current, next_obs)
    output, value, q, predicted, *_ = found
    assert (output.shape[0], value.shape, q.shape, predicted.shape) == (5, (5,), (2, 5), (5,))
    for first, second in zip(found, values(other, next_obs), strict=True):
        assert not np.allclose(first, second)  # every output depends on the observation
    assert not np.allclose(
        predicted, values(current, other)[3]
    )  # the reward also depends on the next observation


def test_critic_may_read_vectors_while_actor_reads_images():
    spec = EnvSpec({"camera": IMAGE, "privileged_state": VECTOR}, ActionSpec(2, False))
    critic = q_network.build(spec, NETWORK, norm="none")
    obs = {"camera": _image(0, 3), "privileged_state": jnp.ones((3, 4))}
    value = jax.jit(lambda: critic.apply(critic.init(jax.random.key(0)), obs, jnp.zeros((3, 2))))()
    assert value.shape == (2, 3)
