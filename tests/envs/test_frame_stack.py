"""Frames are those of the last steps of the episode, in order, and never of another episode."""

import itertools
import json
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs import base
from jax import export as jax_export

from jaxrl import evaluate, export, train
from jaxrl.config import TrainConfig, overrides, validate
from jaxrl.envs import factory
from jaxrl.envs.frame_stack import FrameStack
from jaxrl.envs.tasks import arena
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.policies import load_policy
from jaxrl.policies.numpy_policy import Policy

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


class Echo(base.Env):
    """Observes a random bit; the right action is the bit of the step before."""

    num_actions, action_size, backend, episode_length = 2, 2, "none", 8
    observation_size = 1

    @staticmethod
    def observed(bit):
        return jnp.float32(bit)[None]

    def reset(self, rng):
        bit = jax.random.bernoulli(rng)
        return base.State((rng, bit, bit), self.observed(bit), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        rng, before, bit = state.pipeline_state
        rng, key = jax.random.split(rng)
        next_bit = jax.random.bernoulli(key)
        reward = jnp.float32(action == before)
        inner = (rng, bit, next_bit)
        return state.replace(pipeline_state=inner, obs=self.observed(next_bit), reward=reward)


class EchoInPictures(Echo):
    observation_size: ClassVar = {"image": (4, 4, 1)}

    @staticmethod
    def observed(bit):
        return {"image": jnp.full((4, 4, 1), 255 * bit, jnp.uint8)}


STACKED = "--task.frame-stack 2 --epochs 1 --cycles 1 --eval.num-envs 0 --devices 1 "
LEARNING = (
    "--num-envs 64 --iterations 12 --ppo.rollout-length 16 --ppo.num-minibatches 4 "
    "--ppo.learning-rate 0.003 --network.hidden 16 --network.critic-hidden 16"
)
# A step or two: convolutions take long on a CPU.
SHORT = (
    "--num-envs 4 --iterations 1 --ppo.rollout-length 4 --ppo.num-minibatches 1 "
    "--ppo.update-epochs 1 --network.hidden 16 --network.critic-hidden 16"
)


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("task, flags", [(Echo, LEARNING), (EchoInPictures, SHORT)])
def test_policies_train_and_are_evaluated_and_exported(task, flags, tmp_path):
    """Of single frames the best return is 4.5: the first bit is known, the others are guessed."""
    run, env = tmp_path / "run", ["--env", f"{__name__}:{task.__name__}"]
    assert train.main([*env, *(STACKED + flags).split(), "--run-dir", str(run)]) == 0
    assert evaluate.main([str(run), "--policy", "final", "--episodes", "32", *env]) == 0
    result = json.loads((run / "evaluation-final.json").read_text())
    assert result["mean_ep_length"] == 8
    assert export.main([str(run), "--policy", "final"]) == 0

    bits = np.array([*itertools.product((0, 1), repeat=2)])
    frames = jax.vmap(jax.vmap(task.observed))(bits)
    obs = jax.tree.map(lambda x: np.concatenate([x[:, 0], x[:, 1]], axis=-1), frames)
    action = load_policy(run / "policies" / "final.npz")(obs)
    program = jax_export.deserialize((run / "exported" / "policy.jax").read_bytes())
    np.testing.assert_array_equal(program.call(obs), action)
    if task is Echo:  # NumPy has no convolutions
        np.testing.assert_array_equal(Policy(run / "exported" / "policy.npz")(obs), action)
        np.testing.assert_array_equal(action, bits[:, 0])
        assert result["mean_reward"] == 8
