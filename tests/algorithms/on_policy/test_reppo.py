"""REPPO's batch and losses: oracles for targets, the KL switch, and which network each reaches."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl.algorithms.on_policy import algorithm as on_policy
from jaxrl.algorithms.on_policy import reppo as reppo_module
from jaxrl.algorithms.on_policy.reppo import REPPO, init_params
from jaxrl.algorithms.policy import Extras
from jaxrl.config import NetworkConfig, REPPOConfig, metadata
from jaxrl.learning import normalizer, td
from jaxrl.networks import actor_critic, embedding_critic
from jaxrl.types import ActionSpec, EnvSpec, Rollout

OBS, ACTIONS, T, N = 3, 2, 7, 4
SPEC = EnvSpec(jax.ShapeDtypeStruct((OBS,), jnp.float32), ActionSpec(ACTIONS, discrete=False))
NETWORK = NetworkConfig((8,), (8, 6), activation="tanh", norm="rms", min_std=0.1)
CONFIG = REPPOConfig(
    gamma=0.9, lam=0.8, v_min=-6.0, v_max=8.0, num_atoms=15, reward_scale=0.5, alpha_init=0.3
)
KEY = jax.random.key(3)


@cache
def _reppo():
    return REPPO(
        CONFIG,
        actor_critic.build(SPEC, NETWORK),
        embedding_critic.build(SPEC, NETWORK, CONFIG.support),
    )


def _run(reppo):
    """Return a run of REPPO in an environment that is never stepped."""
    algorithm = reppo_module.make(reppo.config, reppo.networks, reppo.critic)
    env = SimpleNamespace(spec=SPEC)
    return on_policy.OnPolicy(CONFIG, env, reppo.networks, algorithm, total_iterations=1)


def _params(reppo):
    """Return parameters with large last layers: other outputs hardly depend on their input."""
    params = init_params(reppo, KEY)
    head = params["actor"]["params"]["head"]
    head["kernel"] = jax.random.normal(KEY, head["kernel"].shape)
    return params


def _learner(reppo):
    stats = normalizer.update(normalizer.init(SPEC.obs), jax.random.normal(KEY, (50, OBS)) * 2)
    hparams = {name: jnp.float32(value) for name, value in metadata.traced(CONFIG).items()}
    zero, rate = jnp.int32(0), hparams["learning_rate"]
    return on_policy.OnPolicyState(_params(reppo), {}, stats, hparams, zero, rate, zero, zero)


def _experience():
    keys = jax.random.split(KEY, 5)
    rng = np.random.default_rng(0)
    terminated, truncated = (jnp.asarray(rng.random((T, N)) < 0.25) for _ in range(2))
    raw = jax.random.normal(keys[3], (T, N, ACTIONS))
    return Rollout(
        obs=jax.random.normal(keys[0], (T, N, OBS)),
        action=jnp.tanh(raw),
        reward=3.0 * jax.random.normal(keys[1], (T, N)),
        terminated=terminated,
        truncated=truncated,
        next_obs=jax.random.normal(keys[2], (T, N, OBS)),
        extras=Extras(raw, jnp.zeros((T, N))),
        carry=(),
        episodes={},
    )


@cache
def _made():
    """Return a learner, a rollout, and the batch made of them."""

    @jax.jit
    def run():
        learner, experience = _learner(_reppo()), _experience()
        return learner, experience, on_policy.make_batch(_run(_reppo()), learner, experience, KEY)

    return run()


def _split(batch):
    """Undo the cut into steps: [1, N · T, ...] -> [T, N, ...]."""
    return jax.tree.map(lambda x: np.moveaxis(np.reshape(x, (N, T, *x.shape[2:])), 0, 1), batch)


def _log_prob(out, action):
    """Return the log-density of an action under a squashed normal, by SciPy."""
    mean, log_std = np.split(np.asarray(out, np.float64), 2, axis=-1)
    raw = np.arctanh(np.asarray(action, np.float64))
    density = scipy.stats.norm.logpdf(raw, mean, np.exp(log_std))
    return np.sum(density - np.log1p(-(np.tanh(raw) ** 2)), axis=-1)


def test_targets_match_a_loop_over_each_episode():
    reppo = _reppo()
    learner, experience, batch = jax.device_get(_made())
    batch = _split(batch)

    @jax.jit
    def forward(learner, experience):
        obs, next_obs = (
            normalizer.normalize(learner.obs_stats, x)
            for x in (experience.obs, experience.next_obs)
        )
        output, _ = reppo.networks.actor.apply(learner.params["actor"], obs, ())
        out, _ = reppo.networks.actor.apply(learner.params["actor"], next_obs, ())
        next_action = jnp.tanh(reppo.networks.distribution.sample(out, KEY))
        next_output = reppo.critic.apply(learner.params["critic"], next_obs, next_action)
        probs = jax.nn.softmax(next_output.logits)
        return obs, output, out, next_action, next_output, probs

    found = jax.device_get(forward(learner, experience))
    obs, output, out, next_action, next_output, probs = found
    next_q, entropy = probs @ np.linspace(-6.0, 8.0, 15), -_log_prob(out, next_action)
    ended = experience.terminated | experience.truncated
    for n in range(N):
        for t in reversed(range(T)):
            reward = 0.5 * float(experience.reward[t, n])
            later = next_q[t, n]
            if not ended[t, n] and t < T - 1:
                later = 0.2 * next_q[t, n] + 0.8 * batch.target[t + 1, n]
            soft = 0.9 * (0.3 * entropy[t, n] + later)
            expected = reward + (0.0 if experience.terminated[t, n] else soft)
            np.testing.assert_allclose(batch.target[t, n], expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(batch.reward, 0.5 * experience.reward, rtol=1e-6)
    np.testing.assert_allclose(batch.next_embedding, next_output.embedding, atol=1e-5)
    np.testing.assert_array_equal(batch.action, experience.action)
    np.testing.assert_allclose(batch.obs, obs, atol=1e-6)
    np.testing.assert_allclose(batch.old_output, output, atol=1e-5)


@cache
def _changed():
    """Return parameters, settings, and a batch whose policy has changed since.

    All steps have moved, and some by more than the bound.
    """
    learner, _, batch = _made()
    far = np.linspace(0.02, 1.0, T * N, dtype=np.float32)[None, :, None]
    return learner.params, learner.hparams, batch._replace(old_output=batch.old_output + far)


@jax.jit
def _gradients(params, hparams, batch, scale=1.0):
    """Return the gradients and metrics of the loss, with the critic's logits scaled."""
    reppo = _reppo()

    def louder(params, obs, action):
        out = reppo.critic.apply(params, obs, action)
        return out._replace(logits=scale * out.logits)

    other = replace(reppo, critic=reppo.critic._replace(apply=louder))
    loss = jax.grad(lambda p: reppo_module.loss(other, p, hparams, batch, KEY), has_aux=True)
    return loss(params)


def test_each_loss_trains_its_own_network():
    """The gradient of the sum is that of a second implementation, one network at a time."""
    reppo = _reppo()
    params, hparams, batch = _changed()
    hparams = hparams | {"kl_bound": jnp.float32(0.5), "aux_coef": jnp.float32(0.7)}
    atoms, dist = jnp.linspace(-6.0, 8.0, 15), reppo.networks.distribution

    def critic_loss(critic):
        out = reppo.critic.apply(critic, batch.obs, batch.action)
        log_q = jax.nn.log_softmax(out.logits)
        entropy = -jnp.sum(td.hl_gauss(batch.target, atoms) * log_q, axis=-1)
        embedding = jnp.sum((out.next_embedding - batch.next_embedding) ** 2, axis=-1)
        aux = (embedding + (out.reward - batch.reward) ** 2) / 7  # 6 numbers and the reward
        return jnp.mean(entropy + 0.7 * aux)

    def of_policy(actor):
        out, _ = reppo.networks.actor.apply(actor, batch.obs, ())
        raw = dist.sample(out, KEY)
        q = jax.nn.softmax(reppo.critic.apply(params["critic"], batch.obs, jnp.tanh(raw)).logits)
        (mean, log_std), (old, old_log) = (jnp.split(x, 2, -1) for x in (out, batch.old_output))
        std, old_std = jnp.exp(log_std), jnp.exp(old_log)
        kl = jnp.log(std / old_std) + (old_std**2 + (old - mean) ** 2) / (2 * std**2) - 0.5
        return q @ atoms, dist.log_prob(out, raw), jnp.sum(kl, axis=-1)

    def actor_loss(actor):
        q, log_prob, kl = of_policy(actor)
        assert not isinstance(kl, np.ndarray)
        near = (kl < 0.5).astype(jnp.float32)
        return jnp.mean(near * (0.3 * log_prob - q) + (1 - near) * 0.01 * kl)

    def dual_loss(duals):
        _, log_prob, kl = of_policy(params["actor"])
        entropy = -jnp.mean(log_prob)
        alpha, beta = jnp.exp(duals["log_alpha"]), jnp.exp(duals["log_beta"])
        return alpha * (entropy + 0.5 * ACTIONS) - beta * (jnp.mean(kl) - 0.5)

    @jax.jit
    def gradients(params):
        alone = {"critic": critic_loss, "actor": actor_loss, "duals": dual_loss}
        _, _, kl = of_policy(params["actor"])
        return {n: jax.grad(f)(params[n]) for n, f in alone.items()}, jnp.sum(kl < 0.5)

    with jax.numpy_rank_promotion("allow"):
        expected, near = gradients(params)
    assert 5 < int(near) < T * N - 5
    found, _ = _gradients(params, hparams, batch)
    assert found.keys() == expected.keys()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
        assert np.any(np.asarray(b) != 0)


def test_kl_switch_by_hand():
    loss, kl = jnp.float32([5.0, -5.0, 7.0]), jnp.float32([0.05, 0.1, 0.3])
    found = reppo_module.constrained_loss(loss, kl, jnp.float32(2.0), 0.1)
    np.testing.assert_allclose(found, [5.0, 0.2, 0.6])


def test_actor_returns_where_it_is_too_far():
    """Steps beyond the bound have no gradient from the critic: they move back."""
    params, hparams, batch = _changed()
    hparams = hparams | {"kl_bound": jnp.float32(1e-9)}
    one, other = (_gradients(params, hparams, batch, scale)[0] for scale in (1.0, 5.0))
    assert not np.allclose(*(jax.tree.leaves(x["critic"])[-1] for x in (one, other)))
    for a, b in zip(*(jax.tree.leaves(x["actor"]) for x in (one, other)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.parametrize("target, bound", [(-9.0, 900.0), (9.0, 1e-4)])
def test_multipliers_rise_while_their_constraint_is_violated(target, bound):
    params, hparams, batch = _changed()
    new = {"target_entropy": jnp.float32(target), "kl_bound": jnp.float32(bound)}
    grads, _ = _gradients(params, hparams | new, batch)
    violated = target > 0  # more entropy than there is, and less divergence
    for name in ("log_alpha", "log_beta"):
        assert (float(grads["duals"][name]) < 0) == violated


def test_targets_outside_the_support_are_counted():
    params, hparams, batch = _changed()
    target = np.where(np.arange(T * N)[None] < 7, np.float32(9.0), np.float32(1.0))
    _, metrics = _gradients(params, hparams, batch._replace(target=target))
    assert float(metrics["train/clipped_targets"].total) == pytest.approx(7 / (T * N))


def test_first_values_are_near_zero():
    critic = embedding_critic.build(SPEC, NETWORK, (0.0, 150.0, 151))

    @jax.jit
    def run():
        obs, action = jax.random.normal(KEY, (64, OBS)), jnp.zeros((64, ACTIONS))
        out = critic.apply(critic.init(KEY), obs, action)
        return out, td.expected(out.logits, td.support(0.0, 150.0, 151))

    out, values = run()
    assert 0.0 < float(jnp.max(values)) < 2.0
    assert out.embedding.shape == out.next_embedding.shape == (64, 6)
    assert out.reward.shape == (64,)


def test_squared_error_is_that_of_the_mean():
    reppo = _reppo()
    params, hparams, batch = _changed()
    squared = replace(reppo, config=replace(CONFIG, critic_loss="mse"))

    @jax.jit
    def run(params):
        _, metrics = reppo_module.loss(squared, params, hparams, batch, KEY)
        logits = reppo.critic.apply(params["critic"], batch.obs, batch.action).logits
        return metrics["train/q_loss"].total, jax.nn.softmax(logits)

    found, probs = run(params)
    q = np.asarray(probs) @ np.linspace(-6.0, 8.0, 15)
    expected = np.mean((q - np.asarray(batch.target)) ** 2)
    assert float(found) == pytest.approx(expected, rel=1e-4)
