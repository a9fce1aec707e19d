"""SAC and TD3 losses with linear networks match NumPy."""

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
HPARAMS = {
    name: jnp.float32(x)
    for name, x in {
        "gamma": 0.9,
        "target_entropy": -0.7,
        "target_noise": 0.5,
        "target_noise_clip": 0.4,
    }.items()
}


def _critic(params, obs, action):
    """Two values, each the sine of a linear function of observation and action."""
    x = jnp.concatenate([obs, action], axis=-1)
    return jnp.stack([jnp.sin(x @ w) for w in params])


def _networks(kind) -> Any:
    """An actor whose outputs are linear in its observation."""
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


def _critic_loss(params, batch, next_value):
    target = np.asarray(batch.reward) + 0.9 * np.where(batch.terminated, 0.0, next_value)
    value = _q(params["critic"], batch.obs, batch.action)
    return 0.5 * ((value - target) ** 2).mean(axis=1).sum(), value.mean()


def _means(metrics):
    return {name: float(m.total / m.count) for name, m in metrics.items()}


def _close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_sac_losses_match_numpy():
    params, target_params, batch = _inputs()
    algorithm = sac.make(
        OffPolicyConfig(alpha_init=0.5, policy_delay=3),
        _networks("tanh_normal"),
        Critic(lambda k: "q", _critic),
        3,
    )
    total, metrics = algorithm.losses(params, target_params, batch, KEY, HPARAMS)
    actor_noise, next_noise = (
        np.float64(jax.random.normal(key, (B, 1))) for key in jax.random.split(KEY)
    )

    def act(obs, noise):
        out = np.float64(obs) @ params["actor"]
        mean, std = out[:, :1], np.exp(out[:, 1:])
        raw = mean + std * noise
        log_prob = (
            -0.5 * noise**2 - np.log(std * np.sqrt(2 * np.pi)) - np.log(1 - np.tanh(raw) ** 2)
        )
        return np.tanh(raw), log_prob[:, 0]

    alpha = np.exp(-1.2)
    next_action, next_log_prob = act(batch.next_obs, next_noise)
    next_value = (
        _q(target_params["critic"], batch.next_obs, next_action).min(axis=0) - alpha * next_log_prob
    )
    q_loss, q_mean = _critic_loss(params, batch, next_value)
    action, log_prob = act(batch.obs, actor_noise)
    q = _q(params["critic"], batch.obs, action).min(axis=0)
    pi_loss = (alpha * log_prob - q).mean()
    alpha_loss = -1.2 * (-log_prob.mean() - 3 * -0.7)
    np.testing.assert_allclose(total, q_loss + pi_loss + alpha_loss, rtol=1e-4)
    expected = {"train/q_mean": q_mean, "train/q_loss": q_loss, "train/pi_loss": pi_loss}
    expected |= {"train/entropy": -log_prob.mean(), "train/alpha": alpha}
    _close(_means(metrics), expected)
    first = algorithm.init(KEY)
    assert first["actor"] == "actor" and first["critic"] == "q"
    assert float(first["alpha"]["log"]) == pytest.approx(np.log(0.5))
    assert algorithm.actor == "actor" and algorithm.targets == ("critic",)
    assert algorithm.every == {"actor": 3, "alpha": 3}
    assert algorithm.rates == {"actor": "pi_lr", "critic": "q_lr", "alpha": "alpha_lr"}


def test_conservative_gap_matches_an_integral(monkeypatch):
    """Samples estimate log of the integral of exp Q over all actions; here it is summed up."""
    monkeypatch.setattr(sac, "_CQL_SAMPLES", 20_000)
    params, target_params, batch = _inputs()
    both = [
        sac.make(
            OffPolicyConfig(cql_alpha=weight),
            _networks("tanh_normal"),
            Critic(lambda k: "q", _critic),
            3,
        )
        for weight in (0.0, 2.0)
    ]
    hparams = HPARAMS | {"cql_alpha": jnp.float32(2.0)}
    (plain, _), (total, metrics) = (
        jax.jit(each.losses)(params, target_params, batch, KEY, hparams) for each in both
    )
    grid = np.linspace(-1.0, 1.0, 2001)
    q = np.stack([_q(params["critic"], batch.obs, np.full((B, 1), a)) for a in grid])
    integral = np.log(np.trapezoid(np.exp(q), grid, axis=0))
    gap = (integral - _q(params["critic"], batch.obs, batch.action)).mean(axis=1).sum()
    np.testing.assert_allclose(_means(metrics)["train/cql_loss"], gap, rtol=0.02)
    np.testing.assert_allclose(total - plain, 2.0 * gap, rtol=0.02)


def test_td3_losses_match_numpy():
    params, target_params, batch = _inputs()
    del params["alpha"]
    settings = OffPolicyConfig(policy_delay=3)
    algorithm = td3.make(settings, _networks("noisy"), Critic(lambda k: "q", _critic))
    total, metrics = algorithm.losses(params, target_params, batch, KEY, HPARAMS)

    def act(actor, obs):
        return np.tanh((np.float64(obs) @ actor)[:, :1])

    noise = 0.5 * np.float64(jax.random.normal(KEY, (B, 1)))
    assert (np.abs(noise) > 0.4).any() and (np.abs(noise) < 0.4).any()
    next_action = act(target_params["actor"], batch.next_obs) + np.clip(noise, -0.4, 0.4)
    alive = next_action[~np.asarray(batch.terminated)]
    assert (alive > 1).any() and (alive < -1).any()
    next_value = _q(target_params["critic"], batch.next_obs, np.clip(next_action, -1, 1)).min(
        axis=0
    )
    q_loss, q_mean = _critic_loss(params, batch, next_value)
    pi_loss = -_q(params["critic"], batch.obs, act(params["actor"], batch.obs))[0].mean()
    np.testing.assert_allclose(total, q_loss + pi_loss, rtol=1e-4)
    expected = {"train/q_mean": q_mean, "train/q_loss": q_loss, "train/pi_loss": pi_loss}
    _close(_means(metrics), expected)
    assert algorithm.init(KEY) == {"actor": "actor", "critic": "q"}
    assert algorithm.actor == "actor" and algorithm.targets == ("actor", "critic")
    assert algorithm.every == {"actor": 3} and algorithm.rates == {
        "actor": "pi_lr",
        "critic": "q_lr",
    }


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_each_loss_trains_only_its_own_network(algo):
    """In each network, the sum of losses has the gradient of that network's loss."""
    params, target_params, batch = _inputs()
    critic = Critic(lambda k: "q", _critic)
    if algo == "sac":
        algorithm = sac.make(OffPolicyConfig(), _networks("tanh_normal"), critic, 3)
    else:
        algorithm, _ = td3.make(OffPolicyConfig(), _networks("noisy"), critic), params.pop("alpha")

    def loss(params):
        return algorithm.losses(params, target_params, batch, KEY, HPARAMS)

    grads, metrics = jax.jit(jax.grad(loss, has_aux=True))(params)
    # Each loss is also a metric: differentiate it by the network it trains.
    for name, metric in (("critic", "train/q_loss"), ("actor", "train/pi_loss")):

        def own_loss(x, name=name, metric=metric):
            return loss(params | {name: x})[1][metric].total

        expected = jax.jit(jax.grad(own_loss))(params[name])
        np.testing.assert_allclose(grads[name], expected, rtol=1e-3, atol=1e-5)
    if algo == "sac":
        entropy_gap = float(metrics["train/entropy"].total) + 3 * 0.7
        assert float(grads["alpha"]["log"]) == pytest.approx(entropy_gap, rel=1e-4)
