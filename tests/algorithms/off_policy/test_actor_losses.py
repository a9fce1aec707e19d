"""SAC's and TD3's losses with linear networks, against the same sums in NumPy."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.off_policy import sac, td3
from jaxrl.config import OffPolicyConfig
from jaxrl.learning import distributions
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.q_network import Critic

B, KEY = 6, jax.random.key(3)
HYPER = {
    name: jnp.float32(x)
    for name, x in {
        "gamma": 0.9,
        "target_entropy": -0.7,
        "target_noise": 0.5,
        "target_noise_clip": 0.4,
    }.items()
}


def _critic(params, obs, action):
    """Two values, each linear in observation and action, with a bend."""
    x = jnp.concatenate([obs, action], axis=-1)
    return jnp.stack([jnp.sin(x @ w) for w in params])


def _networks(kind) -> Any:
    """An actor whose outputs are linear in what it sees."""
    actor = SimpleNamespace(apply=lambda p, obs, carry: (obs @ p, carry), init=lambda key: "actor")
    return SimpleNamespace(actor=actor, distribution=distributions.DISTRIBUTIONS[kind](1))


def _inputs():
    random = np.random.default_rng(0)

    def normal(*shape):
        return jnp.float32(random.normal(size=shape))

    params = {"actor": normal(2, 2), "critic": normal(2, 3), "alpha": {"log": jnp.float32(-1.2)}}
    target_params = {
        "actor": 4.0 * normal(2, 2),
        "critic": normal(2, 3),
    }  # near the bounds of actions
    batch = Transition(
        obs=normal(B, 2),
        action=jnp.tanh(normal(B, 1)),
        reward=normal(B),
        terminated=jnp.array([False, True, True, False, False, False]),
        next_obs=normal(B, 2),
    )
    return params, target_params, batch


def _q(params, obs, action):
    return np.sin(np.concatenate([obs, action], axis=1) @ np.float64(params).T).T


def _critic_loss(params, batch, follows):
    goal = np.asarray(batch.reward) + 0.9 * np.where(batch.terminated, 0.0, follows)
    value = _q(params["critic"], batch.obs, batch.action)
    return 0.5 * ((value - goal) ** 2).mean(axis=1).sum(), value.mean()


def _noted(metrics):
    return {name: float(m.total / m.count) for name, m in metrics.items()}


def _close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_sac_by_numpy():
    params, target_params, batch = _inputs()
    method = sac.make(
        OffPolicyConfig(alpha_init=0.5), _networks("tanh_normal"), Critic(lambda k: "q", _critic), 3
    )
    total, metrics = method.losses(params, target_params, batch, KEY, HYPER)
    now, then = (np.float64(jax.random.normal(key, (B, 1))) for key in jax.random.split(KEY))

    def act(obs, noise):
        out = np.float64(obs) @ params["actor"]
        mean, std = out[:, :1], np.exp(out[:, 1:])
        raw = mean + std * noise
        log_prob = (
            -0.5 * noise**2 - np.log(std * np.sqrt(2 * np.pi)) - np.log(1 - np.tanh(raw) ** 2)
        )
        return np.tanh(raw), log_prob[:, 0]

    alpha = np.exp(-1.2)
    next_action, next_log_prob = act(batch.next_obs, then)
    follows = (
        _q(target_params["critic"], batch.next_obs, next_action).min(axis=0) - alpha * next_log_prob
    )
    q_loss, q_mean = _critic_loss(params, batch, follows)
    action, log_prob = act(batch.obs, now)
    worth = _q(params["critic"], batch.obs, action).min(axis=0)
    pi_loss = (alpha * log_prob - worth).mean()
    alpha_loss = -1.2 * (-log_prob.mean() - 3 * -0.7)
    np.testing.assert_allclose(total, q_loss + pi_loss + alpha_loss, rtol=1e-4)
    expected = {"train/q_mean": q_mean, "train/q_loss": q_loss, "train/pi_loss": pi_loss}
    expected |= {"train/entropy": -log_prob.mean(), "train/alpha": alpha}
    _close(_noted(metrics), expected)
    first = method.init(KEY)
    assert first["actor"] == "actor" and first["critic"] == "q"
    assert float(first["alpha"]["log"]) == pytest.approx(np.log(0.5))
    assert method.actor == "actor" and method.targets == ("critic",) and method.every == {}
    assert method.rates == {"actor": "pi_lr", "critic": "q_lr", "alpha": "alpha_lr"}


def test_td3_by_numpy():
    params, target_params, batch = _inputs()
    del params["alpha"]
    settings = OffPolicyConfig(policy_delay=3)
    method = td3.make(settings, _networks("noisy"), Critic(lambda k: "q", _critic))
    total, metrics = method.losses(params, target_params, batch, KEY, HYPER)

    def act(actor, obs):
        return np.tanh((np.float64(obs) @ actor)[:, :1])

    noise = 0.5 * np.float64(jax.random.normal(KEY, (B, 1)))
    assert (np.abs(noise) > 0.4).any() and (np.abs(noise) < 0.4).any()
    next_action = act(target_params["actor"], batch.next_obs) + np.clip(noise, -0.4, 0.4)
    alive = next_action[~np.asarray(batch.terminated)]
    assert (alive > 1).any() and (alive < -1).any()
    follows = _q(target_params["critic"], batch.next_obs, np.clip(next_action, -1, 1)).min(axis=0)
    q_loss, q_mean = _critic_loss(params, batch, follows)
    pi_loss = -_q(params["critic"], batch.obs, act(params["actor"], batch.obs))[0].mean()
    np.testing.assert_allclose(total, q_loss + pi_loss, rtol=1e-4)
    expected = {"train/q_mean": q_mean, "train/q_loss": q_loss, "train/pi_loss": pi_loss}
    _close(_noted(metrics), expected)
    assert method.init(KEY) == {"actor": "actor", "critic": "q"}
    assert method.actor == "actor" and method.targets == ("actor", "critic")
    assert method.every == {"actor": 3} and method.rates == {"actor": "pi_lr", "critic": "q_lr"}


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_each_loss_reaches_its_own_network_alone(algo):
    """By finite differences of the sum, with everything else as it is at this point."""
    params, target_params, batch = _inputs()
    critic = Critic(lambda k: "q", _critic)
    if algo == "sac":
        method = sac.make(OffPolicyConfig(), _networks("tanh_normal"), critic, 3)
    else:
        method, _ = td3.make(OffPolicyConfig(), _networks("noisy"), critic), params.pop("alpha")

    def loss(params):
        return method.losses(params, target_params, batch, KEY, HYPER)

    grads, metrics = jax.jit(jax.grad(loss, has_aux=True))(params)
    # The metric of each loss, moved by its own network alone.
    for name, metric in (("critic", "train/q_loss"), ("actor", "train/pi_loss")):

        def one(x, name=name, metric=metric):
            return loss(params | {name: x})[1][metric].total

        own = jax.jit(jax.grad(one))(params[name])
        np.testing.assert_allclose(grads[name], own, rtol=1e-3, atol=1e-5)
    if algo == "sac":
        surplus = float(metrics["train/entropy"].total) + 3 * 0.7
        assert float(grads["alpha"]["log"]) == pytest.approx(surplus, rel=1e-4)
