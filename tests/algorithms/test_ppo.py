"""Properties of one PPO iteration that hold whatever the task."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import ppo
from jaxrl.config import NetworkConfig, PPOConfig
from jaxrl.envs import classic, probes
from jaxrl.envs.vector import VectorEnv
from jaxrl.networks import actor_critic
from tests.algorithms.running import steps

CONFIG = PPOConfig(rollout_length=8, update_epochs=2, num_minibatches=4, learning_rate=1e-3)
NETWORK = NetworkConfig(hidden=(16, 16), critic_hidden=(16,))


def build(config=CONFIG, env=None, total=10, num_envs=16):
    env = env or VectorEnv(classic.Pendulum(), num_envs, 20, pool_size=8)
    networks = actor_critic.build(env.spec, NETWORK)
    return ppo.make(config, env, networks, total)


@pytest.fixture(scope="module")
def plain():
    return steps(build(), 3)


def leaves(tree):
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def test_ratio_is_one_when_nothing_is_learned():
    """Frozen statistics: the training inputs are the acting inputs, at every iteration."""
    _, metrics = steps(build(replace(CONFIG, learning_rate=0.0, normalize_reward=True)), 4)
    for row in metrics:
        assert row["train/approx_kl"] < 1e-12
        assert row["train/clip_fraction"] == 0.0


def test_learning_changes_the_policy_and_statistics(plain):
    state, metrics = plain
    assert metrics[-1]["train/approx_kl"] > 1e-7
    assert float(state.learner.observations.count) == 3 * 8 * 16
    assert int(state.iteration) == 3


def test_same_seed_same_numbers_other_seed_other_numbers(plain):
    again, _ = steps(build(), 3)
    other, _ = steps(build(), 3, seed=1)
    for a, b in zip(leaves(plain[0]), leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    kernels = [jax.tree.leaves(s.learner.params)[1] for s in (plain[0], other)]
    assert not np.array_equal(*kernels)


def test_state_keeps_shapes_types_and_weakness(plain):
    """What comes out goes in again: otherwise every run compiles twice."""
    algorithm = build()
    first = jax.eval_shape(algorithm.init, jax.random.key(0))
    second, _ = jax.eval_shape(algorithm.train_step, first)
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert not getattr(a, "weak_type", False) and not getattr(b, "weak_type", False)


def test_target_kl_skips_remaining_updates():
    free = replace(CONFIG, learning_rate=0.05, num_minibatches=2, update_epochs=4)
    bound = replace(free, target_kl=1e-3)
    loose, _ = steps(build(free), 1)
    tight, metrics = steps(build(bound), 1)
    assert 0 < metrics[0]["train/stopped_by_kl"] < 1
    moved = lambda s: sum(  # noqa: E731
        float(jnp.sum(jnp.square(a - b)))
        for a, b in zip(
            jax.tree.leaves(s.learner.params),
            jax.tree.leaves(jax.jit(build(free).init)(jax.random.key(0)).learner.params),
            strict=True,
        )
    )
    assert moved(tight) < moved(loose)


def test_adaptive_rate_moves_both_ways_and_respects_the_cap():
    shared = {"schedule": "adaptive_kl", "max_learning_rate": 2e-3}
    grows = replace(CONFIG, learning_rate=1e-5, desired_kl=0.1, **shared)
    _, metrics = steps(build(grows), 4)
    assert metrics[-1]["train/learning_rate"] == pytest.approx(2e-3)
    shrinks = replace(CONFIG, learning_rate=2e-3, desired_kl=1e-9, **shared)
    _, metrics = steps(build(shrinks), 4)
    assert metrics[-1]["train/learning_rate"] < 1e-4


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential"])
def test_schedules_reach_their_floor(schedule):
    config = replace(CONFIG, schedule=schedule, schedule_floor=0.1, num_minibatches=1)
    _, metrics = steps(build(config, total=4), 5)
    assert metrics[0]["train/learning_rate"] == pytest.approx(1e-3)
    assert metrics[4]["train/learning_rate"] == pytest.approx(1e-4)


def test_l2_to_initial_and_bound_loss_pull_back():
    pulled = replace(CONFIG, l2_init_coef=10.0, learning_rate=1e-2)
    free = replace(CONFIG, learning_rate=1e-2)

    def distance(config):
        algorithm = build(config)
        start = jax.jit(algorithm.init)(jax.random.key(0)).learner.params
        end = steps(algorithm, 3)[0].learner.params
        gaps = jax.tree.map(lambda a, b: float(jnp.sum(jnp.square(a - b))), start, end)
        return sum(jax.tree.leaves(gaps))

    assert distance(pulled) < 0.5 * distance(free)


def test_reward_scale_leaves_logged_returns_alone():
    _, one = steps(build(), 3)
    _, ten = steps(build(replace(CONFIG, reward_scale=1e-3)), 3)
    assert ten[0]["train/value_loss"] < 0.01 * one[0]["train/value_loss"]
    # Early episodes are acted by nearly the same policy: the log shows plain rewards.
    first = [
        next(r["rollout/ep_rew_mean"] for r in m if "rollout/ep_rew_mean" in r) for m in (one, ten)
    ]
    assert first[0] == pytest.approx(first[1], rel=0.2)


def test_reward_normalisation_matches_vecnormalize():
    """Compare with a plain loop over VecNormalize's definition."""
    config = replace(CONFIG, normalize_reward=True, gamma=0.9)
    env = VectorEnv(probes.PROBES["counter"](), 4, 5, pool_size=4)
    config = replace(config, num_minibatches=2)
    state, _ = steps(build(config, env=env), 3)
    algorithm = build(config, env=env)
    start = jax.jit(algorithm.init)(jax.random.key(0))
    age = np.asarray(start.collector.env.age)
    trace, count, seen = np.zeros(4), np.zeros(4), []
    for _ in range(24):
        count += 1
        age = age + 1
        trace = trace * 0.9 + count  # the probe's reward is its step count
        seen.append(trace.copy())
        ended = age >= 5
        trace[ended], age[ended], count[ended] = 0.0, 0, 0
    np.testing.assert_allclose(state.learner.returns.variance, np.var(seen), rtol=1e-4)
    np.testing.assert_allclose(state.collector.reward_trace, trace, rtol=1e-5)


def test_non_finite_gradients_are_skipped_and_counted():
    # Rewards of 1e38 overflow the value loss; the observations stay finite.
    env = VectorEnv(probes.Exploding(k=1, value=3e38, in_obs=False), 8, 6, pool_size=4)
    config = replace(CONFIG, num_minibatches=2)
    algorithm = build(config, env=env)
    start = jax.jit(algorithm.init)(jax.random.key(0))
    state, metrics = steps(algorithm, 2)
    assert metrics[0]["train/bad_updates"] == 1.0
    assert int(state.learner.skipped) == int(state.learner.bad_streak) == 2 * 2 * 2
    for a, b in zip(leaves(start.learner.params), leaves(state.learner.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_huge_observation_does_not_blind_the_agent():
    """Physics that blows up passes 1e20 before it is NaN: that must not reach the statistics."""
    env = VectorEnv(probes.Exploding(k=3, value=1e20, in_reward=False), 8, 6, pool_size=4)
    state, metrics = steps(build(replace(CONFIG, num_minibatches=2), env=env), 3)
    assert metrics[-1]["rollout/diverged"] > 0
    assert metrics[-1]["train/bad_updates"] == 0
    for leaf in jax.tree.leaves(state.learner.observations):
        assert np.all(np.isfinite(leaf)) and np.all(np.abs(leaf) < 1e6)


def test_observations_pass_unchanged_when_not_normalised():
    algorithm = build(replace(CONFIG, normalize_obs=False))
    state, _ = steps(algorithm, 1)
    act = algorithm.policy(True)
    params = algorithm.policy_params(state.learner)
    far, farther = (
        act(params, jnp.full((1, 3), x), (), jax.random.key(0))[2].log_prob for x in (50.0, 90.0)
    )
    assert float(far[0]) != float(farther[0])
