"""Properties of one PPO iteration that hold for any task."""

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, PPOConfig
from jaxrl.envs.tasks import classic, probes
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from tests.helpers.probing import AnyProbe
from tests.helpers.stepping import Compiled

CONFIG = PPOConfig(rollout_length=8, update_epochs=2, num_minibatches=4, learning_rate=1e-3)
NETWORK = NetworkConfig(hidden=(16, 16), critic_hidden=(16,))


def build(config=CONFIG, env=None, total=10, num_envs=16):
    env = env or VectorEnv(classic.Pendulum(), num_envs, 20, pool_size=8)
    networks = actor_critic.build(env.spec, NETWORK)
    return Compiled(ppo.make(config, env, networks, total))


@pytest.fixture(scope="module")
def standard():
    """CONFIG's programs, shared by runs that differ only in traced settings."""
    return build()


@pytest.fixture(scope="module")
def plain(standard):
    return standard.steps(3)


@pytest.fixture(scope="module")
def normalized():
    """Programs with reward normalisation, on a probe whose reward is its step count."""
    env = VectorEnv(probes.PROBES["counter"](), 4, 5, pool_size=4)
    return build(replace(CONFIG, normalize_reward=True, gamma=0.9, num_minibatches=2), env=env)


@pytest.fixture(scope="module")
def adaptive():
    """Programs with an adaptive learning rate, an L2 loss, and observations as they are."""
    return build(replace(CONFIG, schedule="adaptive_kl", l2_init_coef=10.0, normalize_obs=False))


def leaves(tree):
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def test_ratio_is_one_at_zero_learning_rate(normalized):
    """Statistics are frozen within an iteration: training sees the inputs of acting."""
    state, metrics = normalized.steps(4, learning_rate=0.0)
    assert float(state.learner.obs_stats.mean[0]) > 1  # they do change
    for row in metrics:
        assert row["train/approx_kl"] < 1e-12
        assert row["train/clip_fraction"] == 0.0


def test_learning_changes_the_policy_and_statistics(plain):
    state, metrics = plain
    assert metrics[-1]["train/approx_kl"] > 1e-7
    assert float(state.learner.obs_stats.count) == 3 * 8 * 16
    assert int(state.iteration) == 3


def test_runs_are_deterministic_and_depend_on_the_seed(standard, plain):
    again, _ = standard.steps(3)
    other, _ = standard.steps(3, seed=1)
    for a, b in zip(leaves(plain[0]), leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    kernels = [jax.tree.leaves(s.learner.params)[1] for s in (plain[0], other)]
    assert not np.array_equal(*kernels)


@pytest.mark.parametrize("x64", [False, True])
def test_train_step_preserves_shapes_dtypes_and_weak_types(x64):
    """Otherwise every run would compile twice."""
    with jax.enable_x64(x64):
        algorithm = build().algorithm
        first = jax.eval_shape(algorithm.init, jax.random.key(0))
        second, _ = jax.eval_shape(algorithm.train_step, first)
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert not getattr(a, "weak_type", False) and not getattr(b, "weak_type", False)


def distance(start, end):
    """Return the squared distance between the parameters of two states."""
    pairs = zip(leaves(start.learner.params), leaves(end.learner.params), strict=True)
    return sum(np.sum(np.square(a - b)) for a, b in pairs)


def test_target_kl_skips_remaining_updates(standard):
    start = standard.start()
    loose, free = standard.steps(1, learning_rate=0.05)
    tight, bound = standard.steps(1, learning_rate=0.05, target_kl=1e-3)
    assert free[0]["train/stopped_by_kl"] == 0
    assert 0 < bound[0]["train/stopped_by_kl"] < 1
    assert distance(start, tight) < distance(start, loose)


def test_adaptive_learning_rate_rises_to_its_cap_and_falls(adaptive):
    shared = {"l2_init_coef": 0.0, "max_learning_rate": 2e-3}
    _, grows = adaptive.steps(4, learning_rate=1e-5, desired_kl=0.1, **shared)
    assert grows[-1]["train/learning_rate"] == pytest.approx(2e-3)
    _, shrinks = adaptive.steps(4, learning_rate=2e-3, desired_kl=1e-9, **shared)
    assert shrinks[-1]["train/learning_rate"] < 1e-4


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential"])
def test_schedules_reach_their_floor(schedule):
    config = replace(CONFIG, schedule=schedule, schedule_floor=0.1)
    algorithm = build(config, total=4).algorithm

    @jax.jit  # only the rate is returned, so XLA removes the rest
    def rate(iteration):
        state = algorithm.init(jax.random.key(0)).replace(iteration=iteration)
        return algorithm.train_step(state)[1]["train/learning_rate"].total

    assert float(rate(0)) == pytest.approx(1e-3)
    assert float(rate(4)) == pytest.approx(1e-4)


def test_l2_to_initial_limits_parameter_drift(adaptive):
    fixed = dict.fromkeys(("learning_rate", "min_learning_rate", "max_learning_rate"), 1e-2)
    start, (pulled, _) = adaptive.start(), adaptive.steps(3, **fixed)
    free, _ = adaptive.steps(3, l2_init_coef=0.0, **fixed)
    assert distance(start, pulled) < 0.5 * distance(start, free)


def test_reward_scale_does_not_change_logged_returns(standard, plain):
    _, one = plain
    _, less = standard.steps(3, reward_scale=1e-3)
    assert less[0]["train/value_loss"] < 0.01 * one[0]["train/value_loss"]
    # The policies of the first episodes are nearly equal; logged rewards are unscaled.
    first = [
        next(r["rollout/ep_rew_mean"] for r in m if "rollout/ep_rew_mean" in r) for m in (one, less)
    ]
    assert first[0] == pytest.approx(first[1], rel=0.2)


def test_reward_normalisation_matches_vecnormalize(normalized):
    """Compare with a plain loop over VecNormalize's definition."""
    state, _ = normalized.steps(3)
    age = np.asarray(normalized.start().collector.env.age)
    trace, count, seen = np.zeros(4), np.zeros(4), []
    for _ in range(24):
        count += 1
        age = age + 1
        trace = trace * 0.9 + count  # the probe's reward is its step count
        seen.append(trace.copy())
        ended = age >= 5
        trace[ended], age[ended], count[ended] = 0.0, 0, 0
    np.testing.assert_allclose(state.learner.return_stats.variance, np.var(seen), rtol=1e-4)
    np.testing.assert_allclose(state.collector.discounted_return, trace, rtol=1e-5)


def test_normalized_rewards_are_clipped():
    config = replace(CONFIG, normalize_reward=True, clip_reward=2.0)
    own: Any = SimpleNamespace(amp=None, config=config)
    learner: Any = SimpleNamespace(
        hparams={"reward_scale": 1.0, "gamma": 0.9}, return_stats=normalizer.init(jnp.zeros(()))
    )
    no = jnp.zeros((1, 3), bool)
    experience: Any = SimpleNamespace(
        reward=jnp.array([[-5.0, 1.0, 3.0]]), terminated=no, truncated=no
    )
    reward, _ = ppo._rewards(own, learner, experience, jnp.zeros(3))
    np.testing.assert_allclose(reward, [[-2.0, 1.0, 2.0]], rtol=1e-6)


@pytest.fixture(scope="module")
def exploding():
    """Three iterations on a probe whose rewards (0) or observations (1) explode."""
    kinds = (
        # Rewards of 1e38 overflow the value loss; the observations stay finite.
        functools.partial(probes.Exploding, k=1, value=3e38, in_obs=False),
        # Diverging physics passes 1e20 before it becomes NaN.
        functools.partial(probes.Exploding, k=3, value=1e20, in_reward=False),
    )

    @jax.jit
    def run(number):
        env = VectorEnv(AnyProbe(kinds, number), 8, 6, pool_size=4)
        algorithm = build(replace(CONFIG, num_minibatches=2), env=env).algorithm
        start = algorithm.init(jax.random.key(0))
        end, metrics = jax.lax.scan(lambda s, _: algorithm.train_step(s), start, length=3)
        return start.learner, end.learner, {k: m.total / m.count for k, m in metrics.items()}

    return run


def test_non_finite_gradients_are_skipped_and_counted(exploding):
    start, learner, metrics = exploding(0)
    assert metrics["train/nonfinite_updates"][0] == 1.0
    assert int(learner.skipped_updates) == int(learner.nonfinite_streak) == 3 * 2 * 2
    for a, b in zip(leaves(start.params), leaves(learner.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_huge_observation_does_not_reach_the_statistics(exploding):
    _, learner, metrics = exploding(1)
    assert metrics["rollout/diverged"][-1] > 0
    assert metrics["train/nonfinite_updates"][-1] == 0
    for leaf in jax.tree.leaves(learner.obs_stats):
        assert np.all(np.isfinite(leaf)) and np.all(np.abs(leaf) < 1e6)


def test_observations_are_unchanged_without_normalization(adaptive):
    state, algorithm = adaptive.steps(1)[0], adaptive.algorithm

    @jax.jit
    def log_prob(learner, obs):
        params = algorithm.policy_params(learner)
        return algorithm.policy(True)(params, obs, (), jax.random.key(0))[2].log_prob

    far, farther = log_prob(state.learner, jnp.array([[50.0] * 3, [90.0] * 3]))
    assert far != farther


def test_one_environment_one_step_one_minibatch():
    """The standard deviation of one advantage is 0, and so is that of equal rewards."""
    config = replace(
        CONFIG,
        rollout_length=1,
        num_minibatches=1,
        update_epochs=1,
        normalize_reward=True,
    )
    env = VectorEnv(probes.PROBES["value"](), 1, 1, pool_size=1)
    state, metrics = build(config, env=env).steps(3)
    assert int(state.learner.skipped_updates) == 0
    assert all(np.isfinite(leaf).all() for leaf in leaves(state.learner))
    for row in metrics:
        assert row["rollout/ep_len_mean"] == 1  # every environment is done in every step
