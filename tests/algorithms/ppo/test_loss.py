"""PPO's loss on one minibatch of stub outputs matches NumPy."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl.algorithms.ppo import loss
from jaxrl.algorithms.ppo.batch import Batch
from jaxrl.config import PPOConfig
from jaxrl.learning import distributions

T, N = 3, 4
HPARAMS = {
    name: jnp.float32(x)
    for name, x in {"clip": 0.2, "value_clip": 0.3, "value_coef": 0.7, "bound_coef": 0.4}.items()
}
WEIGHTS = {
    name: jnp.float32(x)
    for name, x in {"entropy_coef": 0.05, "l2_init_coef": 0.02, "teacher_coef": 0.6}.items()
}
PLAIN = PPOConfig(value_clip=0.0, bound_coef=0.0, l2_init_coef=0.0)
FULL = replace(PLAIN, value_clip=1.0, bound_coef=1.0, l2_init_coef=1.0, teacher=Path("run"))


def _forward(params, obs, carry, ended):
    """Add carry and episode ends to the outputs, to show that they arrive."""
    inputs = obs + ended + carry["actor"][None]
    out = params["actor"] + inputs[..., None]
    return out, params["critic"] + carry["critic"][None]


NETWORKS: Any = SimpleNamespace(distribution=distributions.normal(1), forward=_forward)


def _inputs():
    random = np.random.default_rng(0)

    def normal(*shape):
        return jnp.float32(random.normal(size=shape))

    params = {"actor": normal(T, N, 2) * 0.3, "critic": normal(T, N)}
    learner: Any = SimpleNamespace(
        hparams=HPARAMS, initial_params={"actor": normal(T, N, 2), "critic": normal(T, N)}
    )
    batch = Batch(
        obs=normal(T, N),
        raw_action=normal(T, N, 1),
        log_prob=normal(T, N) * 0.3 - 1.5,
        value=params["critic"] + 0.5 * normal(T, N),
        target=normal(T, N),
        advantage=normal(T, N),
        ended=jnp.float32(random.random((T, N)) < 0.5),
        carry={"actor": normal(1, N), "critic": normal(1, N)},
        vtrace=(),
        teacher_output=0.3 * normal(T, N, 2),
        weight=(),
        noise=(),
    )
    return params, learner, batch


def _extra_loss(networks, params, batch, out, value):
    return 0.3 * jnp.mean(jnp.square(value)) + 0.1 * jnp.mean(out[..., 0])


@pytest.mark.parametrize("config", [PLAIN, FULL], ids=["plain", "full"])
def test_loss_and_metrics_match_numpy(config):
    params, learner, batch = _inputs()
    own = _extra_loss if config is FULL else None
    total, metrics = loss.loss(config, NETWORKS, params, learner, batch, WEIGHTS, own)
    out, value = (
        np.float64(x) for x in _forward(params, batch.obs, _first_carry(batch), batch.ended)
    )
    mean, std = out[..., 0], np.exp(out[..., 1])
    log_prob = scipy.stats.norm.logpdf(np.asarray(batch.raw_action)[..., 0], mean, std)
    log_ratio = log_prob - np.asarray(batch.log_prob)
    ratio, advantage = np.exp(log_ratio), np.float64(batch.advantage)
    policy = -np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()
    target, old = np.float64(batch.target), np.float64(batch.value)
    squares = (value - target) ** 2
    if config is FULL:
        squares = np.maximum(squares, (old + np.clip(value - old, -0.3, 0.3) - target) ** 2)
    entropy = scipy.stats.norm(mean, std).entropy().mean()
    expected = policy + 0.7 * squares.mean() - 0.05 * entropy
    kl = l2 = extra = 0.0
    if config is FULL:
        expected += 0.4 * (np.maximum(np.abs(mean) - 1.1, 0.0) ** 2).mean()
        pairs = zip(params.values(), learner.initial_params.values(), strict=True)
        l2 = sum(np.square(p - q).sum() for p, q in pairs)
        expected += 0.02 * l2
        m, s = batch.teacher_output[..., 0], np.exp(batch.teacher_output[..., 1])
        kl = (np.log(std / s) + (s**2 + (m - mean) ** 2) / (2 * std**2) - 0.5).mean()
        extra = 0.3 * np.square(value).mean() + 0.1 * mean.mean()
        expected += 0.6 * kl + extra
    outside = (np.abs(ratio - 1) > 0.2).mean()
    wanted = {
        "train/loss": expected,
        "train/policy_gradient_loss": policy,
        "train/value_loss": squares.mean(),
        "train/entropy_loss": -entropy,
        "train/approx_kl": (ratio - 1 - log_ratio).mean(),
        "train/clip_fraction": outside,
        "train/std": std.mean(),
        "train/teacher_kl": kl,
        "train/l2_init_loss": l2,
        "train/extra_loss": extra,
    }
    assert 0 < outside < 1
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    assert tuple(wanted) == loss.METRICS
    np.testing.assert_allclose(metrics, list(wanted.values()), rtol=1e-3, atol=1e-5)


def _first_carry(batch):
    return {name: leaf[0] for name, leaf in batch.carry.items()}


def test_coefficients_anneal_to_their_end_fraction():
    config = replace(PLAIN, entropy_coef_end=0.5, l2_init_coef_end=1.0, teacher_coef_end=0.0)
    hparams = {name: jnp.array(2.0) for name in WEIGHTS}
    for progress, expected in ((-1.0, (2, 2, 2)), (0.25, (1.75, 2, 1.5)), (1.5, (1, 2, 0))):
        found = loss.coefficients(config, hparams, jnp.array(progress))
        np.testing.assert_allclose([found[name] for name in WEIGHTS], expected)
