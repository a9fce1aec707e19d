"""VectorEnv against hand-computed results on probe environments."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs import vector_env
from jaxrl.envs.tasks import probes
from jaxrl.errors import UserError
from tests.helpers import custom_envs


def _vector(env, **settings):
    defaults = {"num_envs": 4, "episode_length": 5, "pool_size": 8, "random_first_age": False}
    return vector_env.VectorEnv(env, **(defaults | settings))


def _actions(env, steps):
    action = env.spec.action
    shape = (steps, env.num_envs) + (() if action.discrete else (action.size,))
    return jnp.ones(shape, jnp.int32 if action.discrete else jnp.float32)


def _compile_rollout(env, steps):
    """Compile a rollout: (key, actions) -> start, pool, states and results per step, end."""

    @jax.jit
    def rollout(key, actions):
        key_reset, key_pool, key_steps = jax.random.split(key, 3)
        start, pool = env.reset(key_reset), env.sample_pool(key_pool)

        def step(state, inputs):
            action, key = inputs
            after, result = env.step(state, action, pool, key)
            return after, (state, result)

        end, (states, results) = jax.lax.scan(
            step, start, (actions, jax.random.split(key_steps, steps))
        )
        return start, pool, states, results, end

    return rollout


def _play(env, steps, seed=0, actions=None):
    actions = _actions(env, steps) if actions is None else actions
    return jax.device_get(_compile_rollout(env, steps)(jax.random.key(seed), actions))


def _mean(metric):
    return float(metric.total) / float(metric.count)


def _signature(tree):
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


@functools.cache
def _counter():
    return _play(_vector(probes.Counter()), 11)


@functools.cache
def _fresh_start():
    env = _vector(probes.FreshStart(), num_envs=8, pool_size=32, episode_length=10)
    return _play(env, 30)


@functools.cache
def _staggered():
    return _play(
        _vector(probes.Counter(), num_envs=512, episode_length=16, random_first_age=True), 16
    )


# --- termination and truncation


def test_time_limit_truncates_at_the_exact_step():
    _, _, states, results, _ = _counter()
    expected = np.zeros((11, 4), bool)
    expected[[4, 9]] = True
    np.testing.assert_array_equal(results.truncated, expected)
    assert not results.terminated.any()
    np.testing.assert_array_equal(states.age[:, 0], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0])
    np.testing.assert_array_equal(results.reward[:, 0], [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1])


def test_time_limit_statistics():
    _, _, _, _, end = _counter()
    _, metrics = _vector(probes.Counter()).pop_statistics(end)
    assert metrics["rollout/ep_rew_mean"].count == 8  # two episodes of four environments
    assert _mean(metrics["rollout/ep_rew_mean"]) == 5 * 6 / 2
    assert _mean(metrics["rollout/ep_len_mean"]) == 5
    assert metrics["rollout/diverged"].total == 0


def test_next_obs_at_truncation_is_the_final_obs_not_the_reset_obs():
    _, _, states, results, _ = _counter()
    seen = states.packed.obs[:, 0, 0]
    np.testing.assert_array_equal(seen, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0])
    np.testing.assert_array_equal(results.next_obs[:, 0, 0], [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1])


def test_next_obs_at_termination_is_not_the_reset_obs():
    _, _, states, results, _ = _fresh_start()
    assert results.terminated[2].all()
    np.testing.assert_array_equal(
        results.next_obs, states.packed.obs
    )  # every obs of an episode is its secret
    assert (states.packed.obs[3] != results.next_obs[2]).all()


@pytest.mark.parametrize("limit, kind", [(2, "truncated"), (3, "terminated"), (4, "terminated")])
def test_termination_takes_precedence_over_the_time_limit(limit, kind):
    _, _, _, results, _ = _play(_vector(probes.FreshStart(), episode_length=limit), 4)
    other = {"truncated": "terminated", "terminated": "truncated"}[kind]
    at = min(limit, 3) - 1
    assert getattr(results, kind)[at].all() and not getattr(results, kind)[:at].any()
    assert not getattr(results, other)[: at + 1].any()


@pytest.mark.parametrize("done", [True, False])
def test_truncation_reported_by_the_environment(done):
    _, _, states, results, _ = _play(_vector(custom_envs.Cutting(cut=2, done=done)), 5)
    np.testing.assert_array_equal(results.truncated[:, 0], [False, True, False, True, False])
    assert not results.terminated.any()
    np.testing.assert_array_equal(states.packed.obs[:, 0, 0], [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(results.next_obs[:, 0, 0], [1, 2, 1, 2, 1])


# --- action repeat


def test_action_repeat_sums_rewards_and_counts_environment_steps():
    env = _vector(probes.Counter(), episode_length=6, action_repeat=3)
    _, _, states, results, end = _play(env, 4)
    np.testing.assert_array_equal(results.reward[:, 0], [1 + 2 + 3, 4 + 5 + 6, 6, 15])
    np.testing.assert_array_equal(states.age[:, 0], [0, 3, 0, 3])
    np.testing.assert_array_equal(results.truncated[:, 0], [False, True, False, True])
    np.testing.assert_array_equal(results.next_obs[:, 0, 0], [3, 6, 3, 6])
    _, metrics = env.pop_statistics(end)
    assert _mean(metrics["rollout/ep_len_mean"]) == 6
    assert _mean(metrics["rollout/ep_rew_mean"]) == 21


@functools.cache
def _terminated_inside_a_repeat():
    env = _vector(probes.FreshStart(), episode_length=8, action_repeat=2)  # ends after 3 steps
    start, _, _, results, end = _play(env, 2)
    return start.packed.obs[:, 0], results, env.pop_statistics(end)[1]


def test_no_reward_after_termination_inside_a_repeat():
    secret, results, metrics = _terminated_inside_a_repeat()
    np.testing.assert_allclose(results.reward, np.stack([2 * secret, secret]), rtol=1e-6)
    np.testing.assert_array_equal(results.terminated, [[False] * 4, [True] * 4])
    np.testing.assert_allclose(
        _mean(metrics["rollout/ep_rew_mean"]), np.mean(3 * secret), rtol=1e-5
    )


def test_episode_length_stops_at_termination_inside_a_repeat():
    _, _, metrics = _terminated_inside_a_repeat()
    assert _mean(metrics["rollout/ep_len_mean"]) == 3


@pytest.mark.parametrize("done", [True, False])
def test_env_truncation_inside_a_repeat_is_reported(done):
    env = _vector(custom_envs.Cutting(cut=2, done=done), episode_length=100, action_repeat=3)
    _, _, _, results, _ = _play(env, 1)
    assert results.truncated.all()
    np.testing.assert_array_equal(results.reward, np.full((1, 4), 1 + 2))
    np.testing.assert_array_equal(results.next_obs[0, 0], [2])


@pytest.mark.parametrize("repeat, length, success", [(1, 6, 1), (1, 5, 0), (3, 6, 1), (3, 9, 0)])
def test_success_is_the_last_value_and_other_metrics_are_sums(repeat, length, success):
    env = _vector(custom_envs.Measured(), episode_length=length, action_repeat=repeat)
    *_, end = _play(env, length // repeat)
    _, metrics = env.pop_statistics(end)
    assert _mean(metrics["rollout/success_rate"]) == success
    assert _mean(metrics["rollout/ep_height"]) == length * (length + 1) / 2


# --- resets


def test_episodes_and_environments_start_differently():
    start, _, states, results, _ = _fresh_start()
    assert len(np.unique(start.packed.obs)) == 8
    begins = states.packed.obs[::3, :, 0]  # [10 episodes, 8 environments]
    assert (states.age[::3] == 0).all() and results.terminated[2::3].all()
    assert len(np.unique(begins[1:])) >= 25  # of a pool of 32, after 72 draws
    assert not np.isin(begins[1:], begins[0]).any()
    assert min(len(np.unique(row)) for row in begins.T) >= 6  # each environment, over time
    assert min(len(np.unique(row)) for row in begins) >= 5  # all environments, at one time


def test_resets_come_from_the_pool():
    _, pool, states, _, end = _fresh_start()
    assert pool.obs.shape == (32, 1)
    assert np.isin(states.packed.obs[3:], pool.obs).all()
    assert np.isin(end.packed.obs, pool.obs).all()
    inside = _vector(probes.FreshStart()).brax_state(states.packed).pipeline_state
    np.testing.assert_array_equal(states.packed.obs[..., 0], inside.secret)


def test_without_fresh_resets_each_env_returns_to_its_first_state():
    env = _vector(probes.FreshStart(), fresh_resets=False)
    start, pool, states, results, _ = _play(env, 7)
    first = start.packed.obs
    assert len(np.unique(first)) == 4 and not np.isin(first, pool.obs).any()
    assert results.terminated[[2, 5]].all()
    np.testing.assert_array_equal(states.packed.obs, np.broadcast_to(first, (7, 4, 1)))
    np.testing.assert_array_equal(states.age[:, 0], [0, 1, 2, 0, 1, 2, 0])


def test_first_ages_are_uniform():
    start = _staggered()[0]
    counts = np.bincount(start.age, minlength=16)
    assert counts.shape == (16,) and counts.sum() == 512
    assert ((counts - 32) ** 2 / 32).sum() < 38  # chi-squared, 15 degrees of freedom: p = 0.001
    np.testing.assert_array_equal(start.statistics.complete, start.age == 0)


def test_first_ages_are_multiples_of_the_action_repeat():
    env = _vector(probes.Counter(), num_envs=64, episode_length=16, action_repeat=4)
    ages = env.reset(jax.random.key(0), stagger=True).age
    assert set(ages.tolist()) == {0, 4, 8, 12}
    assert not env.reset(jax.random.key(0)).age.any()


def test_random_first_ages_spread_the_first_truncations():
    start, _, _, results, _ = _staggered()
    first = results.truncated.argmax(axis=0)
    np.testing.assert_array_equal(first, 15 - start.age)
    per_step = results.truncated.sum(axis=1)
    assert per_step.min() > 0 and per_step.max() < 2 * 512 / 16


# --- statistics


def test_partial_first_episodes_are_excluded_from_statistics():
    start, _, _, results, end = _staggered()
    _, metrics = _vector(probes.Counter()).pop_statistics(end)
    assert results.truncated.sum() == 512  # each ended once; those that started at age 0 count
    assert 0 < metrics["rollout/ep_rew_mean"].count == (start.age == 0).sum()
    assert _mean(metrics["rollout/ep_rew_mean"]) == 16 * 17 / 2
    assert _mean(metrics["rollout/ep_len_mean"]) == 16


def _reference_statistics(env, start, states, actions, steps):
    """Step each environment alone in Python, with the same time limit and starts."""
    first, later = env.brax_state(start.packed), env.brax_state(states.packed)
    step = jax.jit(env.env.step)
    episodes = []
    for i in range(env.num_envs):
        single = jax.tree.map(lambda x, i=i: x[i], first)
        age, whole, total, length = int(start.age[i]), start.age[i] == 0, 0.0, 0
        for t in range(steps):
            single = step(single, actions[t, i])
            age, total, length = age + 1, total + float(single.reward), length + 1
            if single.done or age == env.episode_length:
                if whole:
                    episodes.append((total, length, float(single.metrics["success"])))
                age, whole, total, length = 0, True, 0.0, 0
                if t + 1 < steps:
                    single = jax.tree.map(lambda x, i=i, t=t: x[t + 1, i], later)
    return episodes


@functools.cache
def _success():
    env = _vector(
        probes.Success(1, 6), num_envs=6, episode_length=5, pool_size=16, random_first_age=True
    )
    actions = jax.random.randint(jax.random.key(5), (14, 6), 0, 2)
    return env, actions, _play(env, 14, actions=actions)


def test_statistics_match_a_python_loop():
    env, actions, (start, _, states, results, end) = _success()
    assert results.truncated.any() and results.terminated.any()
    assert start.age.any()
    returns, lengths, successes = zip(
        *_reference_statistics(env, start, states, actions, 14), strict=True
    )
    assert 0 < sum(successes) < len(successes)
    _, metrics = env.pop_statistics(end)
    for name, values in [
        ("rollout/ep_rew_mean", returns),
        ("rollout/ep_len_mean", lengths),
        ("rollout/success_rate", successes),
    ]:
        assert metrics[name].count == len(values)
        assert metrics[name].total == sum(values)


def test_pop_statistics_clears_only_the_statistics():
    env, _, (*_, end) = _success()
    after, _ = env.pop_statistics(end)
    assert not any(np.any(value) for value in after.statistics.finished.values())
    assert jax.tree.structure(after) == jax.tree.structure(end)
    rest = lambda s: jax.tree.leaves(  # noqa: E731
        s.replace(statistics=s.statistics.replace(finished={}))
    )
    assert all(map(np.array_equal, rest(after), rest(end)))
    _, again = env.pop_statistics(after)
    assert all(m.total == 0 for m in again.values())
    assert all(m.count == 0 for name, m in again.items() if name != "rollout/diverged")


# --- non-finite values


@jax.jit
def _exploding(value, in_obs, in_reward):
    """Return observations, results and counters of seven steps, and the statistics after them."""
    single = probes.Exploding(k=3, value=value, in_obs=in_obs, in_reward=in_reward)
    env = _vector(single, episode_length=10)
    rollout = _compile_rollout(env, 7)
    _, _, states, results, end = rollout(jax.random.key(0), _actions(env, 7))
    steps = env.brax_state(states.packed).pipeline_state.steps
    return states.packed.obs, results, steps, env.pop_statistics(end)[1]


@pytest.mark.parametrize(
    "value, in_obs, in_reward",
    [
        (math.nan, True, True),
        (math.inf, True, False),
        (-math.inf, False, True),
        (math.nan, True, False),
        (math.nan, False, True),
    ],
)
def test_nonfinite_values_terminate_the_episode_and_are_replaced(value, in_obs, in_reward):
    obs, results, steps, metrics = jax.device_get(_exploding(value, in_obs, in_reward))
    np.testing.assert_array_equal(results.reward[:, 0], [1, 1, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(results.terminated[:, 0], np.arange(7) % 3 == 2)
    assert not results.truncated.any()
    np.testing.assert_array_equal(obs, np.ones((7, 4, 1)))
    np.testing.assert_array_equal(results.next_obs, np.ones((7, 4, 1)))
    np.testing.assert_array_equal(steps[:, 0], np.arange(7) % 3)
    assert metrics["rollout/diverged"].total == 2 * 4
    assert _mean(metrics["rollout/ep_rew_mean"]) == 2


def test_nonfinite_values_at_the_time_limit_are_a_termination():
    _, _, _, results, _ = _play(_vector(probes.Exploding(k=3), episode_length=3), 3)
    assert results.terminated[2].all() and not results.truncated.any()


@pytest.mark.parametrize("repeat", [1, 2])
@pytest.mark.parametrize("flag", ["done", "truncation"])
def test_nan_done_or_truncation_flag_ends_the_episode(flag, repeat):
    single = custom_envs.NanEnding(at=3, flag=flag)
    env = _vector(single, episode_length=20, action_repeat=repeat, capture_nonfinite=True)
    _, _, states, results, end = _play(env, 4)
    last = 3 if repeat == 1 else 2
    np.testing.assert_array_equal(results.terminated[:, 0], np.arange(1, 5) % last == 0)
    assert not results.truncated.any() and (states.age[last] == 0).all()
    assert env.pop_statistics(end)[1]["rollout/diverged"].total == 4 * (4 // last)
    assert (end.nan_capture.captured_at == last).all() and np.isnan(
        getattr(end.nan_capture, flag)
    ).all()


def test_nan_reset_is_counted_and_replaced():
    env = _vector(probes.Exploding(k=0, in_reward=False), episode_length=5, capture_nonfinite=True)
    _, pool, _, results, end = _play(env, 3)
    assert np.isnan(pool.obs).all()
    assert results.terminated.all() and not results.reward.any()
    assert np.isfinite(results.next_obs).all() and np.isfinite(env.observe(end)).all()
    assert env.pop_statistics(end)[1]["rollout/diverged"].total == 3 * 4
    assert (end.nan_capture.captured_at == 1).all() and np.isnan(end.nan_capture.before.obs).all()


def test_nan_reset_is_counted_even_if_the_next_step_is_finite():
    env = _vector(custom_envs.NanStart(), episode_length=5)
    _, _, _, results, end = _play(env, 3)
    assert results.terminated.all()
    assert env.pop_statistics(end)[1]["rollout/diverged"].total == 3 * 4


def test_nonfinite_environment_does_not_affect_the_others():
    env = _vector(probes.Exploding(k=3), episode_length=10)
    state = env.reset(jax.random.key(0))
    steps = jnp.array([0, 2, 0, 5])
    inside = env.brax_state(state.packed)
    inside = inside.replace(pipeline_state=inside.pipeline_state.replace(steps=steps))
    state = state.replace(packed=env.pack(inside))
    state, result = env.advance(state, jnp.zeros((4, 1)))
    assert result.terminated.tolist() == [False, True, False, True]
    assert result.reward.tolist() == [1, 0, 1, 0]
    assert state.statistics.finished["diverged"].tolist() == [0, 1, 0, 1]


# --- dict observations


def test_dict_observations():
    env = _vector(probes.PrivilegedValue(), num_envs=8, pool_size=4)
    start, pool, states, results, end = _play(env, 3)
    assert {k: v.shape for k, v in env.spec.obs.items()} == {
        "state": (2,),
        "privileged_state": (1,),
    }
    assert pool.obs["state"].shape == (4, 2)
    assert results.next_obs["state"].shape == (3, 8, 2)
    secret = states.packed.obs["privileged_state"]
    np.testing.assert_array_equal(results.reward, secret[..., 0])
    np.testing.assert_array_equal(results.next_obs["privileged_state"], secret)
    assert results.terminated.all()
    assert (secret[1:] != secret[:-1]).any()
    assert env.pop_statistics(end)[1]["rollout/ep_rew_mean"].count == 3 * 8


# --- types, compilation and keys

ENVS = {**probes.PROBES, "loose": custom_envs.Loose, "measured": custom_envs.Measured}


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("name", sorted(ENVS))
def test_step_preserves_structure_shapes_and_dtypes(name, repeat):
    env = _vector(ENVS[name](), num_envs=3, action_repeat=repeat, episode_length=6)
    key = jax.random.key(0)
    state, pool = jax.eval_shape(env.reset, key), jax.eval_shape(env.sample_pool, key)
    actions = _actions(env, 1)[0]
    after, result = jax.eval_shape(env.step, state, actions, pool, key)
    assert _signature(after) == _signature(state)
    assert _signature(jax.eval_shape(env.advance, state, actions)[0]) == _signature(state)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, pool, result)))
    assert (result.reward.shape, result.reward.dtype) == ((3,), jnp.float32)
    assert result.terminated.dtype == result.truncated.dtype == jnp.bool_


def test_mixed_dtypes_are_cast_without_changing_values():
    env = _vector(custom_envs.Loose(), episode_length=3)
    _, _, states, results, end = _play(env, 4)
    np.testing.assert_array_equal(results.reward[:, 0], [1, 2, 3, 1])
    np.testing.assert_array_equal(states.packed.obs[:, 0, 0], [0, 1, 2, 0])
    _, metrics = env.pop_statistics(end)
    assert _mean(metrics["rollout/ep_height"]) == 4.5
    assert _mean(metrics["rollout/success_rate"]) == 1


def test_integer_reset_with_float_step_is_rejected():
    with pytest.raises(UserError, match="Make reset return floats"):
        _play(_vector(custom_envs.FirstIntegers()), 2)


@pytest.mark.parametrize("single", [probes.PrivilegedValue, custom_envs.Loose])
def test_second_step_does_not_recompile(single):
    env = _vector(single())
    key = jax.random.key(0)
    step = jax.jit(env.step)
    state, pool, actions = env.reset(key), env.sample_pool(key), _actions(env, 1)[0]
    for _ in range(3):
        state, _ = step(state, actions, pool, key)
    assert step._cache_size() == 1


def test_rollout_is_determined_by_the_key():
    env = _vector(probes.Success(1, 6), num_envs=16, pool_size=16, random_first_age=True)
    rollout, actions = _compile_rollout(env, 6), _actions(env, 6)
    first, again, other = (jax.device_get(rollout(jax.random.key(i), actions)) for i in (3, 3, 4))
    assert all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(again)))
    assert not np.array_equal(first[0].packed.obs, other[0].packed.obs)
    assert not np.array_equal(first[0].age, other[0].age)
    assert not np.array_equal(first[1].obs, other[1].obs)


def test_reset_choice_depends_on_the_step_key():
    env = _vector(probes.FreshStart(), num_envs=8, pool_size=32, episode_length=1)
    step = jax.jit(env.step)
    state, pool = env.reset(jax.random.key(0)), env.sample_pool(jax.random.key(1))
    one, two = (step(state, jnp.zeros((8, 1)), pool, jax.random.key(i))[0] for i in (2, 3))
    assert not np.array_equal(one.packed.obs, two.packed.obs)


def test_state_of_a_compiled_reset_can_be_donated():
    env = _vector(probes.Success())
    key = jax.random.key(0)
    step = jax.jit(env.step, donate_argnums=0)
    pool, actions = env.sample_pool(key), _actions(env, 1)[0]
    state, _ = step(jax.jit(env.reset)(key), actions, pool, key)
    state, _ = step(state, actions, pool, key)
    assert state.age.shape == (4,)


def test_spec_distinguishes_discrete_and_continuous_actions():
    assert _vector(probes.Success()).spec.action == (2, True)
    assert _vector(probes.Counter()).spec.action == (1, False)
    assert _vector(probes.TerminationCut()).spec.obs.shape == (4,)


def test_episodic_reward_is_given_at_the_end():
    """Counter gives 1, 2, 3, ...; with a limit of 4, 0, then 10; logged returns are unchanged."""
    rewards = {}
    for name in ("dense", "episodic"):
        one = _vector(
            probes.Counter(), num_envs=2, episode_length=4, episodic_reward=name == "episodic"
        )
        pool = one.sample_pool(jax.random.key(0))
        state = one.reset(jax.random.key(1), pool)
        step = jax.jit(one.step)
        results = []
        for t in range(9):
            state, result = step(state, jnp.zeros((2, 1)), pool, jax.random.key(t))
            results.append(np.asarray(result.reward))
        rewards[name] = np.stack(results)[:, 0].tolist()
        _, metrics = one.pop_statistics(state)
        mean = metrics["rollout/ep_rew_mean"]
        assert float(mean.total / mean.count) == 10.0
    assert rewards["dense"] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert rewards["episodic"] == [0, 0, 0, 10, 0, 0, 0, 10, 0]


def test_reset_without_a_curriculum_uses_the_last_curriculum():
    class Narrow(custom_envs.Widening):
        def last_curriculum(self):
            return {"level": np.float32(0.75)}

    env = _vector(Narrow(), num_envs=2)
    np.testing.assert_array_equal(env.reset(jax.random.key(0)).packed.obs, np.full((2, 1), 0.75))
    first = env.sample_starts(jax.random.key(0), 2, env.first_curriculum)
    np.testing.assert_array_equal(first.obs, np.full((2, 1), 0.25))


# --- random keys of the environment


@pytest.mark.parametrize("kind", ["raw", "nested", "typed"])
@pytest.mark.parametrize("fresh_resets", [True, False])
def test_every_episode_has_its_own_noise(kind, fresh_resets):
    """Environments and episodes reuse the pool's states, but not their keys."""
    env = _vector(
        custom_envs.Noisy(kind),
        num_envs=8,
        pool_size=2,
        episode_length=3,
        fresh_resets=fresh_resets,
    )

    @jax.jit
    def play(key):
        pool = env.sample_pool(key)

        def step(state, key):
            return env.step(state, jnp.zeros((8, 1)), pool, key)

        return jax.lax.scan(step, env.reset(key, pool), jax.random.split(key, 12))[1]

    noise = np.asarray(play(jax.random.key(0)).next_obs)[:, :, 0].reshape(4, 3, 8)
    sequences = np.swapaxes(noise, 1, 2).reshape(-1, 3)
    assert len(np.unique(sequences, axis=0)) == 32
    assert len(np.unique(sequences)) == 96


def test_every_trial_has_its_own_noise():
    class Fixed(custom_envs.Noisy):
        num_trials = 3

        def trial(self, number):
            return self.reset(jax.random.key_data(jax.random.key(7)))

        def record(self, state):
            return state.obs

    env = _vector(Fixed(), num_envs=3, trials=True)
    _, result = env.advance(env.reset(jax.random.key(0)), jnp.zeros((3, 1)))
    assert len(np.unique(result.next_obs)) == 3


@pytest.mark.parametrize("kind", ["raw", "nested", "typed"])
def test_key_leaves_are_found_by_dtype_or_by_name(kind):
    template = _vector(custom_envs.Noisy(kind)).template
    (place,) = template.key_leaves
    found = template.state_shapes.rest[place]
    assert jnp.issubdtype(found.dtype, jax.dtypes.prng_key) == (kind == "typed")


def test_environments_without_key_leaves_skip_key_refresh(monkeypatch):
    env = _vector(probes.Counter())
    assert env.template.key_leaves == ()
    monkeypatch.setattr(vector_env, "with_fresh_keys", None)  # would raise if it were called
    pool = env.sample_pool(jax.random.key(0))
    state = env.reset(jax.random.key(1), pool)
    jax.eval_shape(env.step, state, jnp.zeros((4, 1)), pool, jax.random.key(2))
