"""Rollout collection with a scripted policy on probe environments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import rollout, types
from jaxrl.envs import vector_env
from jaxrl.envs.tasks import probes

NUM_ENVS = 3


def _policy(params, obs, carry, key):
    """Count calls in the carry; return carry and noise as extras; act by the gain plus noise."""
    first = jax.tree.leaves(obs)[0]
    noise = jax.random.normal(key, (first.shape[0], 1))
    extras = {
        "carry": carry,
        "noise": noise[:, 0],
        "gain": jnp.full(first.shape[0], params["gain"]),
    }
    return params["gain"] + noise, {"calls": carry["calls"] + 1}, extras


def _env(env_class, **settings):
    defaults = {"episode_length": 4, "pool_size": 8, "random_first_age": False}
    return vector_env.VectorEnv(env_class, NUM_ENVS, **(defaults | settings))


def _rollout_state(env, key):
    calls = jnp.arange(NUM_ENVS, dtype=jnp.int32) * 100
    return types.RolloutState(env.reset(key), {"calls": calls}, (), jnp.arange(NUM_ENVS * 1.0))


@functools.cache
def _collect(env_class, length, **settings):
    """Compile two consecutive rollouts; return a function of (seed, gain)."""
    env = _env(env_class(), **settings)

    @jax.jit
    def collect(key, gain):
        begin = _rollout_state(env, key)
        keys = jax.random.split(jax.random.fold_in(key, 1))
        params = {"gain": gain}
        middle, first = rollout.collect(env, _policy, params, begin, keys[0], length)
        end, second = rollout.collect(env, _policy, params, middle, keys[1], length)
        return begin, first, middle, second, end

    return lambda seed=0, gain=0.0: jax.device_get(collect(jax.random.key(seed), gain))


def _termination():
    return _collect(probes.TerminationCut, 6, episode_length=50)()


def _fresh_start():
    return _collect(probes.FreshStart, 5, episode_length=50, pool_size=64)()


def _counter():
    return _collect(probes.Counter, 3)()


def test_shapes_are_time_major():
    _, first, *_ = _termination()
    assert first.obs.shape == first.next_obs.shape == (6, NUM_ENVS, 4)
    assert first.action.shape == (6, NUM_ENVS, 1)
    for field in (first.reward, first.terminated, first.truncated, first.extras["noise"]):
        assert field.shape == (6, NUM_ENVS)
    assert first.terminated.dtype == first.truncated.dtype == bool
    assert first.carry["calls"].shape == (1, NUM_ENVS)


@pytest.mark.parametrize("collect_two", [_fresh_start, _counter])
def test_next_obs_is_the_following_obs_within_an_episode(collect_two):
    _, first, _, second, end = collect_two()
    obs = np.concatenate([first.obs, second.obs, end.env.packed.obs[None]])[..., 0]
    next_obs = np.concatenate([first.next_obs, second.next_obs])[..., 0]
    ended = np.concatenate([r.terminated | r.truncated for r in (first, second)])
    assert 0 < ended.sum() < ended.size
    np.testing.assert_array_equal(obs[1:] == next_obs, ~ended)


def test_next_observation_is_the_true_successor():
    _, first, _, second, _ = _counter()
    np.testing.assert_array_equal(first.obs[:, 0, 0], [0, 1, 2])
    np.testing.assert_array_equal(first.next_obs[:, 0, 0], [1, 2, 3])
    np.testing.assert_array_equal(second.obs[:, 0, 0], [3, 0, 1])
    np.testing.assert_array_equal(second.next_obs[:, 0, 0], [4, 1, 2])
    np.testing.assert_array_equal(second.truncated[:, 0], [True, False, False])
    assert not second.terminated.any()


def test_truncation_on_the_last_step_of_a_rollout():
    """next_obs is the true successor, and the next rollout begins with a new episode."""
    _, first, middle, second, _ = _collect(probes.Counter, 4)()
    np.testing.assert_array_equal(first.next_obs[:, 0, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(first.truncated[:, 0], [False, False, False, True])
    assert not first.terminated.any()
    np.testing.assert_array_equal(middle.env.packed.obs, 0)
    np.testing.assert_array_equal(middle.env.age, 0)
    np.testing.assert_array_equal(second.obs[:, 0, 0], [0, 1, 2, 3])


def test_second_rollout_continues_the_first():
    begin, first, middle, second, end = _counter()
    ages = [state.env.age.tolist() for state in (begin, middle, end)]
    assert ages == [[0] * NUM_ENVS, [3] * NUM_ENVS, [2] * NUM_ENVS]
    np.testing.assert_array_equal(second.obs[0], first.next_obs[-1])
    for state in (middle, end):  # updated by the learner, not by collection
        np.testing.assert_array_equal(state.discounted_return, begin.discounted_return)


def test_carry_is_reset_at_the_end_of_an_episode():
    _, first, middle, second, end = _termination()
    offset = np.arange(NUM_ENVS) * 100
    carries = np.concatenate([r.extras["carry"]["calls"] for r in (first, second)])
    expected = np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3])[:, None] + np.zeros_like(offset)
    expected[:4] += offset  # the initial carry lasts until the first episode ends, after four steps
    np.testing.assert_array_equal(carries, expected)
    np.testing.assert_array_equal(middle.carry["calls"], [2] * NUM_ENVS)
    np.testing.assert_array_equal(end.carry["calls"], [0] * NUM_ENVS)  # ended on the last step
    assert end.carry["calls"].dtype == np.int32


def test_carry_is_reset_by_truncation():
    _, _, _, second, end = _counter()
    np.testing.assert_array_equal(second.extras["carry"]["calls"][:, 1], [103, 0, 1])
    np.testing.assert_array_equal(end.carry["calls"], [2] * NUM_ENVS)


def test_carry_is_reset_only_in_environments_that_ended():
    env = _env(probes.Counter(), episode_length=4)
    collector = _rollout_state(env, jax.random.key(0))
    staggered = collector.env.replace(age=jnp.array([3, 0, 1], jnp.int32))
    collector = collector.replace(env=staggered)
    after, _ = rollout.collect(env, _policy, {"gain": 0.0}, collector, jax.random.key(1), 1)
    np.testing.assert_array_equal(after.carry["calls"], [0, 101, 201])
    np.testing.assert_array_equal(after.env.age, [0, 1, 2])


def test_initial_carry_of_a_rollout_is_stored():
    begin, first, middle, second, _ = _termination()
    np.testing.assert_array_equal(first.carry["calls"], [np.arange(NUM_ENVS) * 100])
    np.testing.assert_array_equal(begin.carry["calls"], first.carry["calls"][0])
    np.testing.assert_array_equal(second.carry["calls"][0], middle.carry["calls"])


def test_initial_carry_of_every_segment_is_stored():
    env = _env(probes.TerminationCut(), episode_length=50)
    begin = _rollout_state(env, jax.random.key(0))
    params = {"gain": 0.0}
    ends, rollouts = zip(
        *(
            rollout.collect(env, _policy, params, begin, jax.random.key(1), 6, horizon=horizon)
            for horizon in (None, 2)
        ),
        strict=True,
    )
    carries = rollouts[0].extras["carry"]["calls"]
    np.testing.assert_array_equal(rollouts[1].carry["calls"], carries[::2])
    assert rollouts[1].carry["calls"].shape == (3, NUM_ENVS)
    whole, cut = ((end, r._replace(carry=())) for end, r in zip(ends, rollouts, strict=True))
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        np.testing.assert_array_equal(a, b)


def test_policy_receives_params_and_its_extras_are_stored():
    collect = _collect(probes.Counter, 3)
    rollouts = [collect(gain=gain)[1] for gain in (0.0, 2.5)]
    for gain, one in zip((0.0, 2.5), rollouts, strict=True):
        np.testing.assert_array_equal(one.extras["gain"], np.full((3, NUM_ENVS), gain))
        np.testing.assert_allclose(one.action[..., 0], gain + one.extras["noise"], rtol=1e-6)
    assert len(np.unique(rollouts[0].extras["noise"])) == 3 * NUM_ENVS  # a new key for each step


def test_every_rollout_samples_its_own_reset_pool():
    _, first, _, second, _ = _fresh_start()
    starts = np.concatenate([first.obs[3:4], second.obs[1:2], second.obs[4:5]])  # after resets
    assert len(np.unique(starts)) > NUM_ENVS
    assert not np.isin(second.obs[1], first.obs).any()


def _statistics(rewards, ended):
    """Return (return, length) of each finished episode, one environment at a time."""
    episodes = []
    for reward, end in zip(rewards.T, ended.T, strict=True):
        starts = np.concatenate([[0], np.flatnonzero(end) + 1])
        for begin, stop in zip(starts[:-1], starts[1:], strict=True):
            episodes.append((reward[begin:stop].sum(), stop - begin))
    return np.array(episodes).reshape(-1, 2)


def test_episode_metrics_cover_episodes_that_ended_in_the_rollout():
    _, first, _, second, _ = _fresh_start()
    rewards = np.concatenate([first.reward, second.reward])
    ended = np.concatenate([r.terminated | r.truncated for r in (first, second)])
    before, both = _statistics(rewards[:5], ended[:5]), _statistics(rewards, ended)
    assert len(before) == NUM_ENVS and len(both) == 3 * NUM_ENVS
    for one, expected in [
        (first, before.sum(axis=0)),
        (second, both.sum(axis=0) - before.sum(axis=0)),
    ]:
        returns, lengths = one.episodes["rollout/ep_rew_mean"], one.episodes["rollout/ep_len_mean"]
        np.testing.assert_allclose([returns.total, lengths.total], expected, rtol=1e-5, atol=1e-6)
    assert first.episodes["rollout/ep_rew_mean"].count == NUM_ENVS
    assert second.episodes["rollout/ep_len_mean"].count == 2 * NUM_ENVS


def test_dict_observations():
    _, first, *_ = _collect(probes.PrivilegedValue, 2)()
    assert first.obs["state"].shape == first.next_obs["state"].shape == (2, NUM_ENVS, 2)
    np.testing.assert_array_equal(first.obs["privileged_state"][..., 0], first.reward)


def test_rollout_is_deterministic_given_the_key():
    collect = _collect(probes.FreshStart, 5, episode_length=50, pool_size=64)
    first, again, other = (jax.tree.leaves(collect(seed)[1]) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))
