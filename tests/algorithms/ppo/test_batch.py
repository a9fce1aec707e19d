"""Batches from rollouts: values, advantages and targets against loops, and segment layout."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.policy import Extras
from jaxrl.algorithms.ppo.batch import PPO, Teacher, make_batch, standardize
from jaxrl.config import PPOConfig
from jaxrl.learning import normalizer
from jaxrl.types import Rollout

T, N, H = 4, 2, 2
GAMMA, LAM = 0.9, 0.8
CONFIG = PPOConfig(rollout_length=T, normalize_advantage="none")
SCALE = 3.0  # the critic's only parameter
STATS = normalizer.RunningStats(
    jnp.float32(9), {"x": jnp.float32([0.5])}, {"x": jnp.float32([4.0])}
)


def _values(params, obs, next_obs, carry, ended):
    """A critic whose carry is the sum of its observations since the episode began."""
    x, after = obs["x"][..., 0], next_obs["x"][..., 0]
    if not len(carry):
        return params * x, params * after, ()
    values, next_values, total = [], [], carry[0]
    for t in range(len(x)):
        total = total + x[t]
        values.append(params * total)
        next_values.append(params * (total + after[t]))
        total = jnp.where(ended[t], 0.0, total)
    return jnp.stack(values), jnp.stack(next_values), [total]


NETWORKS: Any = SimpleNamespace(values=_values, is_recurrent=False)


def _ppo(config=CONFIG, networks=NETWORKS, teacher=None) -> PPO:
    env: Any = None  # a batch is made without it
    return PPO(config, env, networks, total_iterations=1, teacher=teacher)


def _experience():
    random = np.random.default_rng(0)

    def normal(*shape):
        return jnp.float32(random.normal(size=shape))

    terminated, truncated = np.zeros((2, T, N), bool)
    terminated[1, 0] = truncated[2, 1] = True
    style = {"amp": normal(T, N, 2)}
    return Rollout(
        obs={"x": normal(T, N, 1)} | style,
        action=(),
        reward=(),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        next_obs={"x": normal(T, N, 1)} | style,
        extras=Extras(normal(T, N, 1), normal(T, N)),
        carry=normal(T // H, N, 3),
        episodes={},
    )


def _learner(**more) -> Any:
    zeros, ones = {"amp": jnp.zeros(2)}, {"amp": jnp.ones(2)}
    stats = STATS.replace(mean=STATS.mean | zeros, variance=STATS.variance | ones)
    hparams = {"gamma": jnp.float32(GAMMA), "lam": jnp.float32(LAM)}
    values = normalizer.RunningStats(jnp.float32(9), jnp.float32(0.7), jnp.float32(0.25))
    params = {"critic": jnp.float32(SCALE), "actor": None}
    return SimpleNamespace(
        params=params, obs_stats=stats, hparams=hparams, value_stats=values, **more
    )


def _expected(experience, reward, center=0.0, spread=1.0, carry=None):
    """Return values, advantages, targets, and the critic's carry before each step."""
    x, after = (
        (np.float64(o["x"][..., 0]) - 0.5) / 2 for o in (experience.obs, experience.next_obs)
    )
    ended = np.asarray(experience.terminated | experience.truncated)
    value, next_value, before = SCALE * x, SCALE * after, []
    if carry is not None:
        total = np.float64(carry)
        for t in range(T):
            before.append(total)
            total = total + x[t]
            value[t], next_value[t] = SCALE * total, SCALE * (total + after[t])
            total = np.where(ended[t], 0.0, total)
        before.append(total)
    v, w = value * spread + center, next_value * spread + center
    delta = reward + GAMMA * np.where(experience.terminated, 0.0, w) - v
    advantage = np.zeros((T + 1, N))
    for t in reversed(range(T)):
        advantage[t] = delta[t] + GAMMA * LAM * np.where(ended[t], 0.0, advantage[t + 1])
    advantage = advantage[:T]
    return value, advantage, (advantage + v - center) / spread, before


def _cut(x):
    """Cut [T, N, ...] into segments [H, N · T / H, ...]; segments of a row are adjacent."""
    x = np.asarray(x)
    return np.stack([x[p * H : (p + 1) * H, n] for n in range(N) for p in range(T // H)], axis=1)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, normalize_advantage="batch", normalize_value=True, bptt_horizon=H),
        replace(CONFIG, value_parts=2),
    ],
    ids=["plain", "normalised", "values in parts"],
)
def test_batch_of_feedforward_networks(config):
    experience = _experience()
    reward = jnp.float32(np.random.default_rng(1).normal(size=(T, N)))
    batch, after = make_batch(_ppo(config), _learner(), experience, reward, ())
    units = (0.7, 0.5) if config.normalize_value else (0.0, 1.0)
    value, advantage, target, _ = _expected(experience, reward, *units)
    if config.normalize_advantage == "batch":
        advantage = (advantage - advantage.mean()) / advantage.std()
    layout = _cut if config.bptt_horizon else np.asarray
    assert (
        after == ()
        and batch.ended == ()
        and batch.weight == batch.noise == batch.teacher_output == ()
    )
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(batch.value, layout(value), **close)
    np.testing.assert_allclose(batch.advantage, layout(advantage), **close)
    np.testing.assert_allclose(batch.target, layout(target), **close)
    np.testing.assert_allclose(batch.obs["x"], layout((experience.obs["x"] - 0.5) / 2), **close)
    assert list(batch.obs) == ["x"]
    np.testing.assert_array_equal(batch.raw_action, layout(experience.extras.raw_action))
    np.testing.assert_array_equal(batch.log_prob, layout(experience.extras.log_prob))


@pytest.mark.parametrize("parts", [None, 2])
def test_critic_carry_continues_across_segments(parts):
    experience, config = _experience(), replace(CONFIG, bptt_horizon=H, value_parts=parts)
    reward, start = jnp.ones((T, N)), jnp.array([0.5, -1.0])
    networks: Any = SimpleNamespace(values=_values, is_recurrent=True)
    ppo = _ppo(config, networks)
    batch, after = make_batch(ppo, _learner(), experience, reward, [start])
    value, advantage, target, before = _expected(experience, reward, carry=start)
    np.testing.assert_allclose(batch.value, _cut(value), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch.advantage, _cut(advantage), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch.target, _cut(target), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after[0], before[-1], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(batch.ended, _cut(experience.terminated | experience.truncated))
    # The carry before each segment: recomputed for the critic, as collected for the actor.
    starts = [before[p * H][n] for n in range(N) for p in range(T // H)]
    np.testing.assert_allclose(batch.carry["critic"][0], [starts], rtol=1e-4, atol=1e-6)
    carried = [experience.carry[p, n] for n in range(N) for p in range(T // H)]
    np.testing.assert_array_equal(batch.carry["actor"], np.array([carried]))


def test_teacher_uses_its_own_observation_statistics():
    experience = _experience()
    stats = normalizer.RunningStats(
        jnp.float32(9),
        {"x": jnp.float32([1.0]), "amp": jnp.zeros(2)},
        {"x": jnp.float32([0.25]), "amp": jnp.ones(2)},
    )
    params: Any = SimpleNamespace(actor=jnp.float32(2.0), obs_stats=stats)
    network: Any = SimpleNamespace(apply=lambda params, obs, carry: (params * obs["x"], carry))
    ppo = _ppo(teacher=Teacher(network, params))
    batch, _ = make_batch(ppo, _learner(teacher=params), experience, jnp.ones((T, N)), ())
    expected = 2.0 * (experience.obs["x"] - 1.0) / 0.5
    np.testing.assert_allclose(batch.teacher_output, expected, rtol=1e-5, atol=1e-5)


def test_standardize():
    found = standardize(jnp.array([[1.0, 2.0], [3.0, 6.0]]))
    np.testing.assert_allclose(
        found, np.array([[-2.0, -1.0], [0.0, 3.0]]) / np.sqrt(3.5), rtol=1e-5
    )
    np.testing.assert_array_equal(standardize(jnp.full(3, 2.0)), np.zeros(3))
    # Below the floor advantages stay as small as they are, relative to it; above, it is not seen.
    small = jnp.array([-0.01, 0.01])
    np.testing.assert_allclose(standardize(small, 0.1), [-0.1, 0.1], rtol=1e-5)
    np.testing.assert_array_equal(standardize(small, 0.005), standardize(small))
