"""Frames are those of the last steps of the episode, in order, and never of another episode."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs import base

from jaxrl.config import TrainConfig, overrides, validate
from jaxrl.envs import factory
from jaxrl.envs.frame_stack import FrameStack
from jaxrl.envs.tasks import arena
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError

LENGTH, N = 5, 3


class Clock(base.Env):
    """Observes its number and the time, as a vector, an image and for the critic."""

    action_size, backend, episode_length = 1, "none", LENGTH
    observation_size: ClassVar = {"state": 2, "image": (2, 2, 1), "privileged_state": 2}

    def _obs(self, number, time):
        vector = jnp.stack([number, time])
        image = jnp.full((2, 2, 1), time, jnp.uint8)
        return {"state": vector, "image": image, "privileged_state": vector}

    def reset(self, rng):
        number = jax.random.uniform(rng)
        return base.State(
            (number, jnp.zeros(())), self._obs(number, 0.0), jnp.zeros(()), jnp.zeros(())
        )

    def step(self, state, action):
        number, time = state.pipeline_state
        return state.replace(pipeline_state=(number, time + 1), obs=self._obs(number, time + 1))


@pytest.fixture(scope="module")
def rollout():
    env = VectorEnv(FrameStack(Clock(), N), 4, LENGTH, pool_size=4, random_first_age=False)

    @jax.jit
    def run(key):
        state, pool = env.reset(key), env.sample_pool(key)
        before, after = [], []
        for _ in range(2 * LENGTH + 2):
            before.append(env.observe(state))
            state, result = env.step(state, jnp.zeros((4, 1)), pool, key)
            after.append(result.next_obs)
        return jax.tree.map(lambda *x: jnp.stack(x), *before), jax.tree.map(
            lambda *x: jnp.stack(x), *after
        )

    return jax.tree.map(np.asarray, run(jax.random.key(0)))


def test_frames_are_the_last_of_the_episode(rollout):
    for observed, ahead in zip(rollout, (0, 1), strict=True):
        for t in range(2 * LENGTH + 2):
            now = t % LENGTH + ahead
            times = [max(now - i, 0) for i in reversed(range(N))]
            frames = observed["state"][t].reshape(4, N, 2)
            np.testing.assert_array_equal(frames[:, :, 1], np.tile(times, (4, 1)))
            assert (frames[:, :, 0] == frames[:, :1, 0]).all()  # of one episode
            np.testing.assert_array_equal(observed["image"][t][:, 0, 0], np.tile(times, (4, 1)))
            assert observed["privileged_state"][t].shape == (4, 2)
    assert observed["image"].dtype == np.uint8 and observed["image"].shape[-3:] == (2, 2, N)


def test_setting_stacks_and_refuses():
    config = overrides.changed(TrainConfig(env="pendulum", num_envs=8), {"task.frame_stack": 4})
    env = factory.build(config)
    assert env.spec.obs.shape == (12,) and env.env.observation_size == 12
    with pytest.raises(UserError, match="tokens cannot be stacked"):
        FrameStack(arena.Arena(), 2)
    hosted = overrides.changed(config, {"env": "gym:CartPole-v1", "devices": 1})
    with pytest.raises(UserError, match="--task.frame-stack must be 1"):
        validate.check(hosted)
