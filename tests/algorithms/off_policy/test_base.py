"""Critic losses on tables: a stub network returns table entries."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.off_policy import base, dqn
from jaxrl.config import OffPolicyConfig
from jaxrl.learning import normalizer
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.q_network import Critic

B, ATOMS, GAMMA = 5, 6, 0.9
NOW, NEXT = 0, 1  # the two states of a table


def _table(params, obs, action):
    """Read a table [2 critics, states, B, ...] at a state; the action is ignored."""
    del action
    return jnp.take_along_axis(params, obs.reshape(1, 1, B, *[1] * (params.ndim - 3)), axis=1)[:, 0]


CRITIC = Critic(init=lambda key: (), apply=_table)


def _batch(counts=None):
    random = np.random.default_rng(0)
    return Transition(
        steps=() if counts is None else jnp.asarray(counts),
        obs=jnp.full(B, NOW),
        action=jnp.zeros((B, 1)),
        reward=jnp.float32(random.normal(size=B)),
        terminated=jnp.array([False, True, False, False, True]),
        next_obs=jnp.full(B, NEXT),
    )


def _project(values, probs, atoms):
    """Split the probability of each value between its two neighboring atoms."""
    result, gap = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for value, p in zip(values, probs, strict=True):
        place = (np.clip(value, atoms[0], atoms[-1]) - atoms[0]) / gap
        low = min(int(place), len(atoms) - 2)
        result[low] += p * (low + 1 - place)
        result[low + 1] += p * (place - low)
    return result


def _softmax(logits):
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


# Of n-step returns: each value is discounted by as many steps as its return has.
COUNTS = np.array([1, 2, 3, 1, 2])


@pytest.mark.parametrize("counts", [None, COUNTS])
@pytest.mark.parametrize("pessimism", ["min", "mean"])
def test_c51_loss_matches_loops(pessimism, counts):
    """The target is the distribution of the critic with the lower mean, or the mixture."""
    config = OffPolicyConfig(
        critic="c51", v_min=-2.0, v_max=3.0, num_atoms=ATOMS, pessimism=pessimism
    )
    random, batch = np.random.default_rng(2), _batch(counts)
    gammas = GAMMA ** (np.ones(B) if counts is None else counts)
    logits, target_params = random.normal(size=(2, 2, 2, B, ATOMS)).astype(np.float32)
    extra, atoms = random.normal(size=B).astype(np.float32), np.linspace(-2.0, 3.0, ATOMS)
    expected, mean, lower = 0.0, [], []
    for b in range(B):
        probs = _softmax(target_params[:, NEXT, b])
        lower.append(int(np.argmin(probs @ atoms)))
        chosen = probs[lower[-1]] if pessimism == "min" else probs.mean(axis=0)
        bootstrap = 0.0 if batch.terminated[b] else gammas[b] * (atoms + extra[b])
        target = _project(batch.reward[b] + bootstrap * np.ones(ATOMS), chosen, atoms)
        for q in _softmax(logits[:, NOW, b]):
            expected += -np.sum(target * np.log(q)) / B
            mean.append(q @ atoms)
    assert {lower[b] for b in range(B) if not batch.terminated[b]} == {0, 1}
    value = base.TwinCritic(config, CRITIC)
    arguments = jnp.asarray(target_params), batch, (), jnp.asarray(extra), jnp.float32(GAMMA)
    loss, metrics = value.loss(jnp.asarray(logits), *arguments)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["train/q_mean"].total, np.mean(mean), rtol=1e-4)


@pytest.mark.parametrize("counts", [None, COUNTS])
@pytest.mark.parametrize("pessimism", ["min", "mean"])
def test_squared_loss_matches_loops(pessimism, counts):
    random, batch = np.random.default_rng(2), _batch(counts)
    gammas = GAMMA ** (np.ones(B) if counts is None else counts)
    now, target_params = random.normal(size=(2, 2, 2, B)).astype(np.float32)
    extra = random.normal(size=B).astype(np.float32)
    expected = 0.0
    for b in range(B):
        next_q = (min if pessimism == "min" else np.mean)(target_params[:, NEXT, b]) + extra[b]
        target = batch.reward[b] + (0.0 if batch.terminated[b] else gammas[b] * next_q)
        expected += sum(0.5 * (now[i, NOW, b] - target) ** 2 / B for i in range(2))
    value = base.TwinCritic(OffPolicyConfig(pessimism=pessimism), CRITIC)
    arguments = jnp.asarray(target_params), batch, (), jnp.asarray(extra), jnp.float32(GAMMA)
    loss, metrics = value.loss(jnp.asarray(now), *arguments)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["train/q_mean"].total, now[:, NOW].mean(), rtol=1e-4)


@pytest.mark.parametrize("critic", ["mse", "c51"])
def test_targets_have_no_gradient(critic):
    """If both networks share parameters, only the current value has a gradient."""
    shape = (2, 2, B, ATOMS) if critic == "c51" else (2, 2, B)
    params = jax.random.normal(jax.random.key(0), shape)
    value = base.TwinCritic(
        OffPolicyConfig(critic=critic, v_min=-1.0, v_max=1.0, num_atoms=ATOMS), CRITIC
    )
    grads = jax.grad(lambda p: value.loss(p, p, _batch(), (), 0.0, jnp.float32(GAMMA))[0])(params)
    assert np.all(np.asarray(grads[:, NEXT]) == 0.0)
    assert np.all(np.abs(grads[:, NOW]).reshape(2, B, -1).max(axis=-1) > 0.0)


def _dqn(double=True, cql_alpha=0.0):
    """Q-values from a table [states, actions]; its last column is epsilon."""
    actor = SimpleNamespace(apply=lambda table, obs, carry: (table[obs], ()), init=None)
    config = OffPolicyConfig(double=double, cql_alpha=cql_alpha)
    return dqn.make(config, SimpleNamespace(actor=actor))


# States 0 and 1. In state 1 the online network prefers action 2, the target network action 0;
# in state 0 both prefer action 1.
ONLINE = jnp.array([[1.0, 4.0, 2.0, 99.0], [0.0, 3.0, 5.0, 99.0]])
TARGET = jnp.array([[7.0, 8.0, 7.0, 99.0], [6.0, 1.0, 2.0, 99.0]])


@pytest.mark.parametrize("double, next_q", [(True, 2.0), (False, 6.0)])
def test_double_dqn_selects_online_and_evaluates_with_target(double, next_q):
    batch = Transition(
        obs=jnp.array([0, 0]),
        action=jnp.array([1, 2]),
        reward=jnp.array([0.5, -1.0]),
        terminated=jnp.array([False, True]),
        next_obs=jnp.array([1, 1]),
    )
    hparams = {"gamma": jnp.float32(GAMMA)}
    errors = [4.0 - (0.5 + GAMMA * next_q), 2.0 - -1.0]
    huber = [0.5 * e**2 if abs(e) <= 1 else abs(e) - 0.5 for e in errors]

    def loss(online, target_params):
        return _dqn(double).losses(
            {"critic": online}, {"critic": target_params}, batch, None, hparams
        )

    found, metrics = loss(ONLINE, TARGET)
    np.testing.assert_allclose(found, np.mean(huber), rtol=1e-6)
    np.testing.assert_allclose(metrics["train/q_loss"].total, np.mean(huber), rtol=1e-6)
    assert float(metrics["train/q_mean"].total) == 3.0
    grads = jax.grad(lambda table: loss(table, table)[0])(ONLINE)
    assert np.flatnonzero(grads).tolist() == [1, 2]  # the taken actions, not the targets


def test_dqn_discounts_by_the_steps_of_a_return():
    taken = jnp.array([1, 2])
    batch = Transition(taken * 0, taken, jnp.zeros(2), jnp.zeros(2, bool), taken * 0)

    def loss(batch, gamma):
        networks = {"critic": ONLINE}
        return _dqn().losses(networks, networks, batch, None, {"gamma": jnp.float32(gamma)})[0]

    both = batch._replace(steps=jnp.array([2, 2]))
    np.testing.assert_allclose(loss(both, GAMMA), loss(batch, GAMMA**2), rtol=1e-6)
    assert loss(both, GAMMA) != loss(batch, GAMMA)


def test_conservative_dqn_lowers_other_actions():
    taken = jnp.array([1, 2])
    batch = Transition(taken * 0, taken, jnp.zeros(2), jnp.ones(2, bool), taken * 0)
    hparams = {"gamma": jnp.float32(GAMMA), "cql_alpha": jnp.float32(3.0)}
    networks = {"critic": ONLINE}
    plain, _ = _dqn().losses(networks, networks, batch, None, hparams)
    total, metrics = _dqn(cql_alpha=3.0).losses(networks, networks, batch, None, hparams)
    gap = np.log(np.exp([1.0, 4.0, 2.0]).sum()) - np.mean([4.0, 2.0])
    np.testing.assert_allclose(metrics["train/cql_loss"].total, gap, rtol=1e-5)
    np.testing.assert_allclose(total - plain, 3.0 * gap, rtol=1e-5)


def test_normalize_scales_only_observations():
    stats = normalizer.RunningStats(jnp.float32(9), jnp.float32([1.0]), jnp.float32([4.0]))
    steps = Transition(jnp.float32([[3.0]]), (), jnp.ones(1), (), jnp.float32([[7.0]]))
    found = base.normalize(stats, steps)
    np.testing.assert_allclose([found.obs, found.next_obs], [[[1.0]], [[3.0]]], rtol=1e-6)
    assert found.reward is steps.reward


@pytest.mark.parametrize("critic", ["mse", "c51"])
@pytest.mark.parametrize("pessimism", ["min", "mean"])
def test_values_of_two_critics_and_their_minimum(critic, pessimism):
    config = OffPolicyConfig(
        critic=critic, v_min=-2.0, v_max=3.0, num_atoms=ATOMS, pessimism=pessimism
    )
    shape = (2, 2, B, ATOMS) if critic == "c51" else (2, 2, B)
    table = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    expected = table[:, NOW]
    if critic == "c51":
        expected = _softmax(expected) @ np.linspace(-2.0, 3.0, ATOMS)
    value, obs = base.TwinCritic(config, CRITIC), jnp.full(B, NOW)
    found = value.values(jnp.asarray(table), obs, jnp.zeros(B))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    lower = expected.min(axis=0) if pessimism == "min" else expected.mean(axis=0)
    found = value.min_q(jnp.asarray(table), obs, jnp.zeros(B))
    np.testing.assert_allclose(found, lower, rtol=1e-4, atol=1e-5)
