"""One PPO gradient step: parameters, early stopping, learning rate and metrics."""

import functools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.ppo import loss as ppo_loss
from jaxrl.algorithms.ppo import update as ppo_update
from jaxrl.algorithms.ppo.batch import PPO, Batch, PPOState
from jaxrl.algorithms.ppo.update import UpdateState
from jaxrl.config import PPOConfig
from jaxrl.learning import distributions
from jaxrl.learning.optimizer import adam

T, N, KEY = 3, 8, jax.random.key(0)
CONFIG = PPOConfig(
    rollout_length=T, num_minibatches=1, max_grad_norm=0.0, normalize_advantage="none"
)
START = {"actor": jnp.float32([0.5, -0.3]), "critic": jnp.float32([0.8])}
FLAT, UNRAVEL = ravel_pytree(START)
WEIGHTS = {name: jnp.float32(0.1) for name in ("entropy_coef", "l2_init_coef", "teacher_coef")}
HPARAMS = {
    "clip": 0.2,
    "value_coef": 0.5,
    "target_kl": 0.0,
    "desired_kl": 0.01,
    "min_learning_rate": 1e-4,
    "max_learning_rate": 1.0,
}


def _networks(kind="normal") -> Any:
    def forward(params, obs, carry, ended):
        mean, log_std = params["actor"][:1], params["actor"][1:]
        out = jnp.stack([obs * mean[0], jnp.ones_like(obs) * log_std[0]], axis=-1)
        return out, obs * params["critic"][0]

    return SimpleNamespace(forward=forward, distribution=distributions.DISTRIBUTIONS[kind](1))


def _ppo(config, kind="normal", num_shards=1) -> PPO:
    env: Any = None  # gradient steps use none
    return PPO(config, env, _networks(kind), total_iterations=1, num_shards=num_shards)


def _part(scale=1.0):
    random = np.random.default_rng(0)

    def normal(*shape):
        return jnp.float32(random.normal(size=shape))

    obs, raw = normal(T, N), normal(T, N, 1)
    out, value = _networks().forward(START, obs, (), ())
    log_prob = distributions.normal(1).log_prob(out, raw) + 0.1 * normal(T, N)
    return Batch(
        obs=obs,
        raw_action=raw,
        log_prob=log_prob,
        value=value,
        target=scale * normal(T, N),
        advantage=1.0 + 2.0 * normal(T, N),
        ended=(),
        carry=(),
        vtrace=(),
        teacher_output=(),
        weight=jnp.float32(random.uniform(0.5, 2.0, size=(1, N))),
        noise=(),
    )


def _learner(config=CONFIG, rate=0.1, **hparams) -> PPOState:
    zero = jnp.zeros((), jnp.int32)
    hparams = {name: jnp.float32(x) for name, x in (HPARAMS | hparams).items()}
    nothing: Any = ()
    return PPOState(
        params=FLAT,
        initial_params=nothing,
        teacher=nothing,
        optimizer=adam(config.max_grad_norm, config.adam_epsilon).init(FLAT),
        obs_stats=nothing,
        return_stats=nothing,
        value_stats=nothing,
        hparams=hparams,
        total_iterations=zero,
        learning_rate=jnp.float32(rate),
        skipped_updates=zero + 4,
        nonfinite_streak=zero + 3,
    )


@functools.cache
def _gradient_step(config, kind, num_shards):
    ppo = _ppo(config, kind, num_shards)
    return jax.jit(partial(ppo_update.gradient_step, ppo, UNRAVEL, WEIGHTS))


def _step(
    config=CONFIG, part=None, first=False, stopped=False, kind="normal", num_shards=1, **hparams
):
    """Return the learner, is_first, stopped, and the metrics by name, after one step."""
    state = UpdateState(_learner(config, **hparams), jnp.asarray(first), jnp.asarray(stopped))
    inputs = (ppo_update.standardized(config, _part() if part is None else part), KEY)
    after, metrics = _gradient_step(config, kind, num_shards)(state, inputs)
    names = (*ppo_loss.METRICS, "grad_norm", "stopped", "bad")
    return after[:3], dict(zip(names, map(float, metrics), strict=True))


@functools.partial(jax.jit, static_argnames="kind")
def _loss_gradient(part, kind="normal"):
    def loss(flat):
        networks = _networks(kind)
        return ppo_loss.loss(CONFIG, networks, UNRAVEL(flat), _learner(), part, WEIGHTS)

    return jax.grad(loss, has_aux=True)(FLAT)


def test_step_is_adam_and_reports_the_loss():
    (learner, first, stopped), logged = _step()
    grads, metrics = _loss_gradient(_part())
    # Adam's first step is g / (|g| + ε).
    np.testing.assert_allclose(
        learner.params, FLAT - 0.1 * grads / (np.abs(grads) + 1e-5), rtol=1e-4
    )
    np.testing.assert_allclose(optax.tree.get(learner.optimizer, "mu"), 0.1 * grads, rtol=1e-4)
    np.testing.assert_allclose([logged[name] for name in ppo_loss.METRICS], metrics, rtol=1e-4)
    assert logged["grad_norm"] == pytest.approx(float(jnp.linalg.norm(grads)), rel=1e-4)
    assert logged["stopped"] == logged["bad"] == 0.0
    assert not first and not stopped
    assert int(learner.skipped_updates) == 4 and int(learner.nonfinite_streak) == 0
    assert float(learner.learning_rate) == pytest.approx(0.1)


@pytest.mark.parametrize("sampling", ["sequential", "prioritized"])
@pytest.mark.parametrize("standard", ["none", "minibatch"])
def test_advantages_are_standardised_then_weighted(sampling, standard):
    part = _part()
    expected = np.asarray(part.advantage)
    if standard == "minibatch":
        expected = (expected - expected.mean()) / expected.std()
    if sampling == "prioritized":
        expected = expected * np.asarray(part.weight)
    config = replace(CONFIG, sampling=sampling, normalize_advantage=standard)
    _, logged = _step(config)
    _, metrics = _loss_gradient(part._replace(advantage=jnp.asarray(expected)))
    np.testing.assert_allclose([logged[name] for name in ppo_loss.METRICS], metrics, rtol=1e-3)


def test_entropy_estimate_uses_noise_from_the_step_key():
    _, logged = _step(kind="tanh_normal")
    part = _part()._replace(noise=jax.random.normal(KEY, (T, N, 1)))
    _, metrics = _loss_gradient(part, kind="tanh_normal")
    np.testing.assert_allclose([logged[name] for name in ppo_loss.METRICS], metrics, rtol=1e-4)


@pytest.mark.parametrize(
    "times, already, stops",
    [
        (1.4, False, False),
        (1.6, False, True),
        (1.4, True, True),
        (0.0, False, False),
    ],
)
def test_updates_stop_above_1_5_times_target_kl(times, already, stops):
    kl = _step()[1]["train/approx_kl"]
    (learner, _, stopped), logged = _step(stopped=already, target_kl=kl / times if times else 0.0)
    assert bool(stopped) is stops and logged["stopped"] == stops
    assert np.array_equal(learner.params, FLAT) is stops
    assert int(learner.skipped_updates) == 4 and logged["bad"] == 0.0  # stopped, not non-finite


@pytest.mark.parametrize("beyond, stops", [(0.0, False), (1e-3, True)])
def test_updates_continue_at_exactly_1_5_times_target_kl(monkeypatch, request, beyond, stops):
    metrics = jnp.zeros(len(ppo_loss.METRICS)).at[ppo_update._KL].set(1.5 + beyond)
    monkeypatch.setattr(ppo_update, "gradients", lambda *_: (jnp.ones_like(FLAT), metrics))
    _gradient_step.cache_clear()
    request.addfinalizer(_gradient_step.cache_clear)
    (_, _, stopped), _ = _step(target_kl=1.0)
    assert bool(stopped) is stops


def test_non_finite_steps_are_counted():
    (learner, _, stopped), logged = _step(part=_part(scale=np.inf))
    np.testing.assert_array_equal(learner.params, FLAT)
    assert int(learner.skipped_updates) == 5 and int(learner.nonfinite_streak) == 4
    assert logged["bad"] == 1.0 and logged["grad_norm"] == 0.0 and not stopped


@pytest.mark.parametrize(
    "first, stopped, desired, rate",
    [
        (False, False, 0.1, 0.15),
        (False, False, 0.001, 0.1 / 1.5),
        (True, False, 0.1, 0.1),
        (False, True, 0.1, 0.1),
    ],
)
def test_learning_rate_follows_kl_after_the_first_step(first, stopped, desired, rate):
    config = replace(CONFIG, schedule="adaptive_kl")
    assert 0.002 < _step()[1]["train/approx_kl"] < 0.05
    (learner, *_), _ = _step(config, first=first, stopped=stopped, desired_kl=desired)
    assert float(learner.learning_rate) == pytest.approx(rate, rel=1e-5)
    (learner, *_), _ = _step(first=first, stopped=stopped, desired_kl=desired)
    assert float(learner.learning_rate) == pytest.approx(0.1)


def test_learning_rate_stays_within_bounds():
    config = replace(CONFIG, schedule="adaptive_kl")
    for desired, bounds, rate in (
        (0.1, {"max_learning_rate": 0.12}, 0.12),
        (0.001, {"min_learning_rate": 0.09}, 0.09),
    ):
        (learner, *_), _ = _step(config, desired_kl=desired, **bounds)
        assert float(learner.learning_rate) == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize("num_shards, kind", [(1, "normal"), (2, "tanh_normal")])
def test_accumulated_gradients_equal_full_minibatch(num_shards, kind):
    """Also if the entropy is estimated from noise (tanh_normal)."""
    (whole, *_), expected = _step(kind=kind)
    config = replace(CONFIG, accumulate=4)
    (accumulated, *_), logged = _step(config, kind=kind, num_shards=num_shards)
    found, wanted = (optax.tree.get(x.optimizer, "mu") for x in (accumulated, whole))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    for name in logged:
        assert logged[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_loss_sees_one_accumulation_part_at_a_time(monkeypatch, parts):
    seen = []

    def loss(config, networks, params, learner, part, weights, extra_loss):
        seen.append(part.obs.shape)
        return jnp.sum(params["actor"]), jnp.zeros(len(ppo_loss.METRICS))

    monkeypatch.setattr(ppo_loss, "loss", loss)
    # N rows are one of two minibatches.
    config = replace(CONFIG, accumulate=parts, num_minibatches=2)
    gradients = partial(ppo_update.gradients, _ppo(config), UNRAVEL, WEIGHTS)
    jax.eval_shape(gradients, _learner(), _part())
    assert set(seen) == {(T, N // parts)}


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_optimizer_follows_config(kind):
    """Muon's step for a matrix is orthogonal; Adam's first step is a matrix of signs."""
    matrix = {"w": jnp.diag(jnp.array([3.0, 1.0]))}
    flat, unravel = ravel_pytree(matrix)
    config = replace(CONFIG, optimizer=kind, adam_epsilon=1e-12, max_grad_norm=1e-3)
    transform = ppo_update.make_optimizer(config, unravel)
    updates, _ = jax.jit(lambda: transform.update(flat + 0.5, transform.init(flat), flat))()
    found = np.asarray(unravel(updates)["w"])
    if kind == "adam":
        np.testing.assert_allclose(found, np.ones((2, 2)), rtol=1e-3)
    else:
        np.testing.assert_allclose(np.linalg.svd(found)[1], 1.0, atol=0.4)


@pytest.mark.parametrize("sampling", ["sequential", "uniform"])
def test_epoch_plans_and_noise_use_separate_keys(sampling):
    """Each epoch has one key for its plan and one for the noise of each minibatch."""
    config = replace(CONFIG, num_minibatches=2, update_epochs=2, sampling=sampling)
    ppo, progress = _ppo(config, "tanh_normal"), jnp.float32(0.0)
    learner, part = _learner(rate=0.01), _part()._replace(weight=())
    learner = learner.replace(hparams=learner.hparams | WEIGHTS)
    update = jax.jit(partial(ppo_update.update, ppo))
    found, _ = update(learner.replace(params=START), part, KEY, progress)
    state = UpdateState(learner, jnp.asarray(True), jnp.asarray(False))
    step = _gradient_step(config, "tanh_normal", 1)
    for plan_key, *noise_keys in jax.random.split(KEY, (2, 3)):
        plans = ppo_update.plan_epoch(ppo, part, plan_key)
        for plan, key in zip(plans, noise_keys, strict=True):
            params = UNRAVEL(state.learner.params)
            drawn, _ = ppo_update.sample(ppo, state.learner, params, part, (), plan, progress)
            state, _ = step(state, (drawn, key))
    np.testing.assert_allclose(ravel_pytree(found.params)[0], state.learner.params, atol=1e-5)


@pytest.mark.parametrize("sampling", ["sequential", "uniform"])
def test_metrics_average_all_epochs_and_minibatches(sampling):
    """At learning rate 0 all steps see one policy: their mean is that of the whole batch."""
    config = replace(CONFIG, num_minibatches=4, update_epochs=2, sampling=sampling)
    part = _part()._replace(weight=())
    learner = _learner(rate=0.0).replace(params=START)
    coefficients = dict.fromkeys(WEIGHTS, jnp.float32(0.1))
    learner = learner.replace(hparams=learner.hparams | coefficients)
    update = jax.jit(partial(ppo_update.update, _ppo(config)))
    after, logged = update(learner, part, KEY, jnp.float32(0.0))
    jax.tree.map(np.testing.assert_array_equal, after.params, START)
    unused = {"train/teacher_kl", "train/l2_init_loss", "train/extra_loss"}
    assert not unused & logged.keys()
    assert "train/nonfinite_updates" in logged
    assert int(optax.tree.get(after.optimizer, "count")) == 8
    _, metrics = _loss_gradient(part)
    found = [float(logged[name].total / logged[name].count) for name in ppo_loss.METRICS[:-3]]
    exactly = np.allclose(found, metrics[:-3], rtol=1e-3)
    assert exactly if sampling == "sequential" else not exactly
