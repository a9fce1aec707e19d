"""Evaluation episodes: resets, truncation and non-finite values."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.tasks.probes import Exploding, Success
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.evaluation import analysis, episodes


def test_finished_environments_stay_at_their_start():
    env = VectorEnv(Success(1, 4), num_envs=32, episode_length=10)

    def policy(params, obs, carry, key):
        return jnp.ones(env.rows, jnp.int32), carry, {}

    play = episodes.episodes(env, policy, (), record=lambda state: state.packed.obs[:, 0])
    played = jax.jit(play)((), jax.random.key(0))
    lengths, trace = np.asarray(played.lengths), np.asarray(played.trace)
    assert set(lengths) == {1, 2, 3, 4}
    np.testing.assert_array_equal(played.returns, 1.0)
    np.testing.assert_array_equal(played.successes, 1.0)
    for step, obs in enumerate(trace[:4]):  # finished ones repeat their first step
        expected = np.where(step < lengths, lengths - 1 - step, lengths - 1)
        np.testing.assert_array_equal(obs, expected)


def test_termination_at_the_time_limit_is_not_truncation():
    env = VectorEnv(Success(1, 4), num_envs=32, episode_length=3)

    def policy(params, obs, carry, key):
        return jnp.ones(env.rows, jnp.int32), carry, {}

    played = jax.jit(episodes.episodes(env, policy, ()))((), jax.random.key(0))
    won, length = np.asarray(played.successes) > 0, np.asarray(played.lengths)
    assert (won & (length == 3)).any() and (~won & (length == 3)).any()
    np.testing.assert_array_equal(played.truncated, ~won)
    np.testing.assert_array_equal(analysis.table(played, env).timed_out, ~won)


def test_episodes_ending_in_non_finite_values_are_counted():
    env = VectorEnv(Exploding(k=3, in_obs=False), num_envs=4, episode_length=5)
    play = jax.jit(episodes.episodes(env, lambda p, obs, c, key: (jnp.zeros((4, 1)), c, {}), ()))
    played = play((), jax.random.key(0))
    assert played.nonfinite.all() and (np.asarray(played.lengths) == 3).all()
    assert episodes.summarize(jax.device_get(played))["eval/diverged"] == 4
