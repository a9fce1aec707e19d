"""Pictures: who counts as one, what a change of pictures is, and networks that look at them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import NetworkConfig
from jaxrl.networks import actor_critic, cnn, q_network, reward_network
from jaxrl.types import ActionSpec, EnvSpec

IMAGE = jax.ShapeDtypeStruct((10, 6, 3), jnp.uint8)
VECTOR = jax.ShapeDtypeStruct((4,), jnp.float32)
NETWORK = NetworkConfig((8,), (8,))


def _picture(seed, *lead):
    random = np.random.default_rng(seed)
    return jnp.asarray(random.integers(0, 256, (*lead, 10, 6, 3)), jnp.uint8)


def test_bytes_with_height_width_and_channels_are_pictures():
    assert cnn.is_image(IMAGE)
    assert not cnn.is_image(VECTOR)
    assert not cnn.is_image(jax.ShapeDtypeStruct((49, 3), jnp.uint8))  # tokens


def test_change_is_in_light_and_keeps_its_sign():
    before = cnn.ImageObs((jnp.full((1, 2, 2, 1), 51, jnp.uint8),), jnp.array([[3.0]]))
    after = cnn.ImageObs((jnp.full((1, 2, 2, 1), 102, jnp.uint8),), jnp.array([[1.0]]))
    changed = cnn.image_change(before, after)
    np.testing.assert_allclose(changed.images[0][..., 0], 0.2, rtol=1e-6)
    np.testing.assert_allclose(changed.images[0][..., 1], -0.2, rtol=1e-5)
    np.testing.assert_allclose(changed.vector, [[3.0, 2.0]])


def test_change_of_bytes_that_are_no_picture_keeps_its_sign():
    """0 − 1 is −1, as for the same numbers in single precision, also beside a picture."""
    before, after = jnp.array([[0, 5, 9]], jnp.uint8), jnp.array([[1, 5, 7]], jnp.uint8)
    changed = cnn.image_change(cnn.ImageObs((), before), cnn.ImageObs((), after)).vector
    np.testing.assert_array_equal(changed, [[0, 5, 9, -1, 0, 2]])

    @jax.jit
    def guess(before, after):
        spec = EnvSpec(jax.ShapeDtypeStruct((3,), before.dtype), ActionSpec(1, False))
        network = reward_network.build(spec, NETWORK)
        return network.apply(network.init(jax.random.key(0)), before, jnp.zeros((1, 1)), after)

    numbers = guess(before.astype(jnp.float32), after.astype(jnp.float32))
    np.testing.assert_allclose(guess(before, after), numbers, rtol=1e-6)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("obs", [IMAGE, {"camera": IMAGE, "joints": VECTOR}])
def test_all_networks_look_at_pictures_and_numbers(obs, discrete):
    spec = EnvSpec(obs, ActionSpec(2, discrete))
    networks = actor_critic.build(spec, NETWORK)
    critic, reward = (
        q_network.build(spec, NETWORK, layer_norm=True),
        reward_network.build(spec, NETWORK),
    )

    def look(seed):
        joints = jax.random.normal(jax.random.key(seed), (5, 4))
        picture = _picture(seed, 5)
        return {"camera": picture, "joints": joints} if isinstance(obs, dict) else picture

    @jax.jit
    def values(now, then):
        keys = jax.random.split(jax.random.key(0), 4)
        params = {"actor": networks.actor.init(keys[0]), "critic": networks.critic.init(keys[1])}
        action = jnp.zeros(5, jnp.int32) if discrete else jnp.zeros((5, 2))
        output, value = networks.forward(params, now, {"actor": (), "critic": ()}, None)
        worth = critic.apply(critic.init(keys[2]), now, action)
        return output, value, worth, reward.apply(reward.init(keys[3]), now, action, then)

    now, then, other = look(0), look(1), look(2)
    output, value, worth, paid = values(now, then)
    assert (output.shape[0], value.shape, worth.shape, paid.shape) == (5, (5,), (2, 5), (5,))
    for first, second in zip(values(now, then), values(other, then), strict=True):
        assert not np.allclose(first, second)  # what is seen matters to every one of them
    assert not np.allclose(paid, values(now, other)[3])  # and what follows, to the reward


def test_a_critic_may_see_numbers_where_the_actor_sees_a_picture():
    spec = EnvSpec({"camera": IMAGE, "privileged_state": VECTOR}, ActionSpec(2, False))
    critic = q_network.build(spec, NETWORK, layer_norm=False)
    obs = {"camera": _picture(0, 3), "privileged_state": jnp.ones((3, 4))}
    value = jax.jit(lambda: critic.apply(critic.init(jax.random.key(0)), obs, jnp.zeros((3, 2))))()
    assert value.shape == (2, 3)
