"""PPO's gradient steps against a second implementation with NumPy loops and explicit losses.

One minibatch holds all rows, so sampling order does not matter, and every step after the first sees
a changed policy.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.policy import Extras
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.config import NetworkConfig, PPOConfig
from jaxrl.envs.tasks import classic
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer
from jaxrl.networks import actor_critic
from jaxrl.types import Rollout

T, N = 6, 4
CONFIG = PPOConfig(
    rollout_length=T,
    update_epochs=3,
    num_minibatches=1,
    learning_rate=3e-2,
    gamma=0.9,
    lam=0.8,
    entropy_coef=0.02,
    value_coef=0.7,
)
REUSE = replace(
    CONFIG,
    advantage="vtrace",
    rho_clip=1.1,
    c_clip=0.9,
    sampling="prioritized",
    prio_alpha=0.7,
    prio_beta0=0.4,
)
EVERYTHING = replace(
    CONFIG,
    update_epochs=2,
    normalize_advantage="batch",
    normalize_value=True,
    value_clip=0.05,
    bound_coef=0.3,
    l2_init_coef=0.02,
    entropy_coef_end=0.5,
    l2_init_coef_end=0.25,
    max_grad_norm=0.0,
)
NETWORK = NetworkConfig((8,), (8,), activation="tanh", distribution="normal", init_std=0.5)
ENV = VectorEnv(classic.Pendulum(), N, 5, pool_size=4)
NETWORKS = actor_critic.build(ENV.spec, NETWORK)
ITERATION, TOTAL = 3, 10


def _experience():
    random = np.random.default_rng(0)
    obs, next_obs = random.normal(size=(2, T, N, 3))
    ended = random.random((T, N)) < 0.3
    terminated = ended & (random.random((T, N)) < 0.5)
    assert terminated.any() and (ended & ~terminated).any() and not ended[-1].all()
    # Successors are the next observations, but for the ends of episodes.
    next_obs[:-1] = np.where(ended[:-1, :, None], next_obs[:-1], obs[1:])
    return Rollout(
        obs=jnp.float32(obs),
        action=(),
        reward=jnp.float32(random.normal(size=(T, N))),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(ended & ~terminated),
        next_obs=jnp.float32(next_obs),
        extras=Extras(jnp.float32(1.5 * random.normal(size=(T, N, 1))), jnp.zeros((T, N))),
        carry=(),
        episodes={},
    )


def _log_prob(params, obs, raw):
    out = NETWORKS.actor.apply(params, obs, ())[0]
    mean, std = out[..., :1], jnp.exp(out[..., 1:])
    return jax.scipy.stats.norm.logpdf(raw, mean, std)[..., 0], mean, std


@functools.cache
def _start(config):
    """Return a mid-run state, and a rollout of a slightly different policy."""
    algorithm = ppo.make(config, ENV, NETWORKS, TOTAL)
    return algorithm, *jax.jit(functools.partial(_mid_run, algorithm))(_experience())


def _mid_run(algorithm, experience):
    state = algorithm.init(jax.random.key(1))
    obs_stats = normalizer.RunningStats(
        jnp.float32(50), jnp.array([0.2, -0.1, 0.0]), jnp.full(3, 0.5)
    )
    value_stats = normalizer.RunningStats(jnp.float32(50), jnp.float32(0.3), jnp.float32(4.0))
    learner = state.learner.replace(obs_stats=obs_stats, value_stats=value_stats)
    # Away from the initial parameters, so that the L2 term counts.
    learner = learner.replace(params=jax.tree.map(lambda x: 1.3 * x + 0.05, learner.params))
    obs = normalizer.normalize(obs_stats, experience.obs)
    log_prob, *_ = _log_prob(learner.params["actor"], obs, experience.extras.raw_action)
    drift = jnp.float32(0.1 * np.random.default_rng(5).normal(size=(T, N)))
    experience = experience._replace(extras=experience.extras._replace(log_prob=log_prob + drift))
    state = state.replace(iteration=jnp.int32(ITERATION), learner=learner)
    return state, experience


def _advantages(config, data, value, next_value, ratio):
    """Sum discounted errors up to the end of each episode."""
    rho, c = np.minimum(ratio, config.rho_clip), np.minimum(ratio, config.c_clip)
    if config.advantage == "gae":
        rho = c = np.ones_like(ratio)
    result = np.zeros((T, N))
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                bootstrap = 0.0 if data.terminated[k, n] else config.gamma * next_value[k, n]
                error = data.reward[k, n] + bootstrap - value[k, n]
                result[t, n] += weight * rho[k, n] * error
                if data.terminated[k, n] or data.truncated[k, n]:
                    break
                weight *= config.gamma * config.lam * c[k, n]
    return result


def _standard(x):
    return (x - x.mean()) / x.std()


def _loss(config, learner, data, obs, params, advantage, old_value, target):
    done = ITERATION / TOTAL
    log_prob, mean, std = _log_prob(params["actor"], obs, data.extras.raw_action)
    ratio = jnp.exp(log_prob - data.extras.log_prob)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    total = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
    value = NETWORKS.critic.apply(params["critic"], obs, ())[0]
    square = (value - target) ** 2
    if config.value_clip:
        clipped_value = old_value + jnp.clip(
            value - old_value, -config.value_clip, config.value_clip
        )
        square = jnp.maximum(square, (clipped_value - target) ** 2)
    total += config.value_coef * jnp.mean(square)
    entropy = jnp.mean(jnp.log(std) + 0.5 * np.log(2 * np.pi * np.e))
    total -= config.entropy_coef * (1 - (1 - config.entropy_coef_end) * done) * entropy
    total += config.bound_coef * jnp.mean(jnp.maximum(jnp.abs(mean) - 1.1, 0) ** 2)
    if config.l2_init_coef:
        flat, first = ravel_pytree(params)[0], ravel_pytree(learner.initial_params)[0]
        weight = config.l2_init_coef * (1 - (1 - config.l2_init_coef_end) * done)
        total += weight * jnp.sum((flat - first) ** 2)
    return total


def _reference_update(config, learner, data):
    """Return the parameters after all gradient steps, by the second implementation."""
    obs, next_obs = (
        (x - learner.obs_stats.mean[None, None]) / jnp.sqrt(0.5 + 1e-8)
        for x in (data.obs, data.next_obs)
    )
    center, spread = (0.3, np.sqrt(4.0 + 1e-8)) if config.normalize_value else (0.0, 1.0)

    @jax.jit
    def evaluate(params):
        value, after = (NETWORKS.critic.apply(params["critic"], x, ())[0] for x in (obs, next_obs))
        log_prob, *_ = _log_prob(params["actor"], obs, data.extras.raw_action)
        return value, after, jnp.exp(log_prob - data.extras.log_prob)

    gradient = jax.jit(jax.grad(functools.partial(_loss, config, learner, data, obs)))
    parts = [optax.adam(config.learning_rate, eps=config.adam_epsilon)]
    if config.max_grad_norm:
        parts.insert(0, optax.clip_by_global_norm(config.max_grad_norm))
    transform, params = optax.chain(*parts), learner.params
    state = transform.init(params)

    @jax.jit
    def apply(grads, state, params):
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    data = jax.tree.map(np.asarray, data)
    old_value, after, _ = map(np.asarray, evaluate(params))
    ended = data.terminated | data.truncated
    values, ratios = old_value, np.ones((T, N))  # of the last visit
    plain = _advantages(config, data, old_value * spread + center, after * spread + center, ratios)
    target = (plain + old_value * spread + center - center) / spread
    if config.advantage == "vtrace":
        # Targets of the critic are those of GAE.
        once = replace(config, advantage="gae")
        target = _advantages(once, data, old_value, after, ratios) + old_value
    for _ in range(config.update_epochs):
        now_value, _, now_ratio = map(np.asarray, evaluate(params))
        advantage, weight = plain, np.ones((1, N))
        if config.advantage == "vtrace":
            next_value = np.concatenate([values[1:], after[-1:]])
            next_value = np.where(ended, after, next_value)
            last_seen = _advantages(config, data, values, next_value, ratios)
            probs = np.abs(last_seen).sum(axis=0) ** config.prio_alpha + 1e-6
            probs /= probs.sum()
            beta = config.prio_beta0
            beta += (1 - beta) * config.prio_alpha * ITERATION / TOTAL
            weight = (N * probs[None]) ** -beta
            advantage = _advantages(config, data, values, next_value, now_ratio)
            values, ratios = now_value, now_ratio
        advantage = _standard(advantage) * weight
        grads = gradient(
            params, jnp.float32(advantage), jnp.float32(old_value), jnp.float32(target)
        )
        params, state = apply(grads, state, params)
    return params


@pytest.mark.parametrize("config", [REUSE, EVERYTHING], ids=["reuse", "everything"])
def test_gradient_steps_match_second_implementation(config):
    algorithm, state, experience = _start(config)
    after, _ = jax.jit(algorithm.learn)(state, experience)
    found = ravel_pytree(after.learner.params)[0]
    expected = ravel_pytree(_reference_update(config, state.learner, experience))[0]
    start = ravel_pytree(state.learner.params)[0]
    assert np.abs(expected - start).max() > 0.02
    np.testing.assert_allclose(found, expected, atol=2e-4)
