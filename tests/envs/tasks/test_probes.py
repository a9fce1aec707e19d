"""Dynamics of the probe environments; learning on them is tested elsewhere."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs

from jaxrl.envs.tasks import probes
from tests.helpers.donation import assert_donatable

NAMES = sorted(probes.PROBES)


def _signature(tree):
    """List structure, shapes, dtypes and weak types, all of which a scan carry must keep."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


def _action(env, value=0):
    """Make an action of the kind that the environment expects."""
    if hasattr(env, "num_actions"):
        return jnp.int32(value)
    return jnp.full(env.action_size, value, jnp.float32)


def _play(env, actions, seed=0):
    """Return first observation, then observation, reward and done of each step, as numpy."""
    state = env.reset(jax.random.key(seed))
    first, steps = np.asarray(state.obs), []
    for value in actions:
        state = env.step(state, _action(env, value))
        steps.append((np.asarray(state.obs), float(state.reward), float(state.done)))
    obs, rewards, dones = zip(*steps, strict=True)
    return first, np.stack(obs), list(rewards), list(dones)


def _resets(env, count=2000):
    return jax.vmap(env.reset)(jax.random.split(jax.random.key(7), count))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make_key", [jax.random.PRNGKey, jax.random.key])
def test_step_preserves_structure_shapes_and_dtypes(name, make_key):
    env = probes.PROBES[name]()
    state = jax.eval_shape(env.reset, make_key(0))
    assert isinstance(env, envs.Env)
    assert _signature(jax.eval_shape(env.step, state, _action(env))) == _signature(state)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))
    outputs = (state.obs, state.reward, state.done, state.metrics)
    assert {leaf.dtype for leaf in jax.tree.leaves(outputs)} == {jnp.dtype(jnp.float32)}
    assert state.reward.shape == state.done.shape == ()


@pytest.mark.parametrize("name", NAMES)
def test_sizes_match_observations(name):
    env = probes.PROBES[name]()
    obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
    if isinstance(obs, dict):
        assert env.observation_size == {key: part.shape for key, part in obs.items()}
    else:
        assert obs.shape == (env.observation_size,)
    assert env.action_size == getattr(env, "num_actions", 1)
    assert isinstance(env.episode_length, int) and isinstance(env.backend, str)


@pytest.mark.parametrize("name", NAMES)
def test_jit_and_vmap_match_single_steps(name):
    env = probes.PROBES[name]()
    keys = jax.random.split(jax.random.key(3), 4)
    actions = jnp.stack([_action(env, value) for value in (0, 1, 1, 0)])
    batch = jax.jit(jax.vmap(env.reset))(keys)
    batch = jax.jit(jax.vmap(env.step))(batch, actions)
    single = [env.step(env.reset(key), action) for key, action in zip(keys, actions, strict=True)]
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-6),
        batch,
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *single),
    )


@pytest.mark.parametrize("name", NAMES)
def test_step_preserves_info_and_metrics_of_wrappers(name):
    env = probes.PROBES[name]()
    state = env.reset(jax.random.key(0))
    metrics = {**state.metrics, "mark": jnp.float32(4)}
    state = env.step(state.replace(info={"mark": jnp.float32(3)}, metrics=metrics), _action(env))
    assert state.info == {"mark": 3} and state.metrics["mark"] == 4


@pytest.mark.parametrize("name", NAMES)
def test_states_can_be_donated(name):
    env = probes.PROBES[name]()
    action = _action(env)
    assert_donatable(env.reset(jax.random.key(0)))
    assert_donatable(env.step(env.reset(jax.random.key(0)), action))


@pytest.mark.parametrize("name", NAMES)
def test_terminating_probes_end_before_their_time_limit(name):
    env = probes.PROBES[name]()
    _, _, _, dones = _play(env, [0] * env.episode_length)
    never_ends = name in ("truncation", "exploding", "counter")
    assert (1.0 in dones[:-1]) != never_ends


def test_constant_value():
    first, obs, rewards, dones = _play(probes.ConstantValue(), [0.3])
    assert first == 0 and obs[0] == 0 and rewards == [1] and dones == [1]


def test_observation_value():
    env = probes.ObservationValue()
    for seed in range(8):
        first, _, rewards, dones = _play(env, [0.3], seed)
        assert rewards == [first[0]] and dones == [1]


def test_discounting():
    first, obs, rewards, dones = _play(probes.Discounting(), [0, 0])
    assert [first[0], obs[0, 0]] == [0, 1] and rewards == [0, 1] and dones == [0, 1]


def test_action_choice():
    env = probes.ActionChoice()
    assert _play(env, [1])[2:] == ([1], [1])
    assert _play(env, [0])[2:] == ([-1], [1])


def test_observation_action():
    env = probes.ObservationAction()
    for seed in range(8):
        sign = _play(env, [0], seed)[0][0]
        assert _play(env, [1], seed)[2:] == ([sign], [1])
        assert _play(env, [0], seed)[2:] == ([-sign], [1])


@pytest.mark.parametrize("name", ["obs_value", "obs_action", "memory"])
def test_signs_are_balanced(name):
    obs = np.asarray(_resets(probes.PROBES[name]()).obs)
    assert set(obs.ravel()) == {-1, 1} and abs(obs.mean()) < 0.1


def test_continuous_target():
    env = probes.ContinuousTarget()
    first, _, rewards, dones = _play(env, [0.5])
    assert rewards == pytest.approx([-((0.5 - first[0]) ** 2)]) and dones == [1]
    state = env.reset(jax.random.key(5))
    assert env.step(state, state.obs).reward == 0
    targets = np.asarray(_resets(env).obs)
    assert 0.79 < targets.max() <= 0.8 and -0.8 <= targets.min() < -0.79
    assert np.mean(-(targets**2)) == pytest.approx(-0.64 / 3, abs=0.015)


def test_truncation_bootstrap():
    first, obs, rewards, dones = _play(probes.TruncationBootstrap(), [0] * 10)
    assert probes.TruncationBootstrap.episode_length == 4
    assert first == 1 and np.all(obs == 1) and rewards == [1] * 10 and dones == [0] * 10


def test_termination_cut():
    first, obs, rewards, dones = _play(probes.TerminationCut(), [0] * 4)
    np.testing.assert_array_equal([first, *obs], np.eye(4)[[3, 2, 1, 0, 3]])
    assert rewards == [1] * 4 and dones == [0, 0, 0, 1]


def test_privileged_value():
    states = _resets(probes.PrivilegedValue(), 200)
    env = probes.PrivilegedValue()
    after = jax.vmap(env.step)(states, jnp.zeros((200, 1)))
    assert not np.any(states.obs["state"])
    assert set(np.ravel(states.obs["privileged_state"])) == {-1, 1}
    np.testing.assert_array_equal(after.reward, states.obs["privileged_state"][:, 0])
    assert np.all(after.done == 1)


@pytest.mark.parametrize("delay", [1, 3, 12])
def test_memory(delay):
    env = probes.Memory(delay)
    blanks = [0] * delay
    assert env.episode_length > delay + 1
    for seed in range(4):
        first, obs, rewards, dones = _play(env, [*blanks, 1], seed)
        assert abs(first[0]) == 1 and not np.any(obs)
        assert rewards == [*blanks, first[0]] and dones == [*blanks, 1]
        assert _play(env, [1] * delay + [0], seed)[2] == [*blanks, -first[0]]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_exploding(value):
    first, obs, rewards, dones = _play(probes.Exploding(k=3, value=value), [0] * 5)
    np.testing.assert_array_equal([*first, *obs[:, 0]], [1, 1, 1, value, value, value])
    np.testing.assert_array_equal(rewards, [1, 1, value, value, value])
    assert dones == [0] * 5


def test_exploding_in_one_place_only():
    _, obs, rewards, _ = _play(probes.Exploding(k=1, in_reward=False), [0, 0])
    assert np.all(np.isnan(obs)) and rewards == [1, 1]
    _, obs, rewards, _ = _play(probes.Exploding(k=1, in_obs=False), [0, 0])
    assert np.all(obs == 1) and np.all(np.isnan(rewards))
    assert np.isnan(_play(probes.Exploding(k=0), [0])[0])


def test_success_counts_down_to_the_scored_step():
    env = probes.Success(min_steps=3, max_steps=3)
    first, obs, rewards, dones = _play(env, [0, 0, 1])
    assert [first[0], *obs[:, 0]] == [3, 2, 1, 0]
    assert rewards == [0, 0, 1] and dones == [0, 0, 1]
    assert _play(env, [1, 1, 0])[2:] == ([0, 0, 0], [0, 0, 1])


def test_success_metric_is_set_on_the_last_step_only():
    env = probes.Success(min_steps=2, max_steps=2)
    state = env.reset(jax.random.key(0))
    seen = [state.metrics["success"]]
    for _ in range(2):
        state = env.step(state, jnp.int32(1))
        seen.append(state.metrics["success"])
    assert seen == [0, 0, 1]


def test_success_lengths_are_uniform():
    lengths = np.asarray(_resets(probes.Success(2, 4)).obs).ravel()
    values, counts = np.unique(lengths, return_counts=True)
    assert list(values) == [2, 3, 4] and np.all(np.abs(counts / 2000 - 1 / 3) < 0.05)


def test_fresh_start():
    env = probes.FreshStart()
    first, obs, rewards, dones = _play(env, [0] * 3)
    assert np.all(obs == first) and rewards == [first[0]] * 3 and dones == [0, 0, 1]
    starts = np.asarray(_resets(env).obs)
    assert len(np.unique(starts)) > 1990 and starts.min() < -0.98 and starts.max() > 0.98


def test_counter():
    first, obs, rewards, dones = _play(probes.Counter(), [0] * 4)
    assert [first[0], *obs[:, 0]] == [0, 1, 2, 3, 4]
    assert rewards == [1, 2, 3, 4] and dones == [0] * 4


@pytest.mark.parametrize(
    "build",
    [
        lambda: probes.Memory(0),
        lambda: probes.Exploding(-1),
        lambda: probes.Success(0, 2),
        lambda: probes.Success(3, 2),
    ],
)
def test_invalid_arguments_are_rejected(build):
    with pytest.raises(ValueError, match="needs"):
        build()
