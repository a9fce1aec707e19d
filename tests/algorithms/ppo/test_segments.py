"""Recurrent policies, BPTT segments, V-trace and minibatch sampling."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms import policy as policies
from jaxrl.algorithms.ppo import algorithm as ppo
from jaxrl.algorithms.ppo import update as ppo_update
from jaxrl.algorithms.ppo.batch import PPO, make_batch
from jaxrl.config import NetworkConfig, PPOConfig, metadata
from jaxrl.envs.tasks import classic, recall
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer, segments
from jaxrl.learning.gae import gae
from jaxrl.networks import actor_critic
from jaxrl.rollout import collect as collect_rollout
from tests.helpers.stepping import jit_for_long

CONFIG = PPOConfig(rollout_length=8, update_epochs=2, num_minibatches=4, learning_rate=1e-3)
SMALL = NetworkConfig(hidden=(8,), critic_hidden=(8,), distribution="normal")
LSTM = replace(SMALL, rnn="lstm", rnn_size=8)


ENV = VectorEnv(classic.Pendulum(), 16, 5, pool_size=8)  # episodes end inside segments


def build(config=CONFIG, network=SMALL, teacher=None, total=10):
    networks = actor_critic.build(ENV.spec, network)
    return ppo.make(config, ENV, networks, total, teacher=teacher)


@functools.cache
def collected(network, horizon=None):
    """Return an initial state and one rollout of its policy.

    Without memory, the rollout does not depend on the horizon.
    """
    algorithm = build(replace(CONFIG, bptt_horizon=horizon), network)

    @jax.jit
    def collect(key):
        state = algorithm.init(key)
        params, policy = algorithm.policy_params(state.learner), algorithm.policy(False)
        start = state.collector
        return state, collect_rollout(ENV, policy, params, start, key, 8, horizon=horizon)[1]

    return collect(jax.random.key(0))


@functools.cache
def learning(config, network):
    return jax.jit(build(config, network).learn)


def learner_after(config, network=SMALL, **hparams):
    """Return the learner after learning twice from the same rollout, and the last metrics.

    `hparams` override traced settings of `config` without compiling another program.
    """
    learn = learning(config, network)
    state, experience = collected(network, config.bptt_horizon)
    config = replace(config, **hparams)
    hparams = {name: jnp.float32(x) for name, x in metadata.traced(config).items()}
    learner = state.learner.replace(hparams=hparams, learning_rate=hparams["learning_rate"])
    state = state.replace(learner=learner)
    state, _ = learn(state, experience)
    state, metrics = learn(state, experience)
    return state.learner, metrics


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def params_after(config, **hparams):
    """Return all parameters after learning twice from the same rollout."""
    return flat(learner_after(config, **hparams)[0].params)


# Without gradient steps: nothing but the first rollout and its carries matters.
FIXED = replace(CONFIG, learning_rate=0.0, normalize_obs=False, bptt_horizon=4)
GRU = replace(LSTM, rnn="gru", rnn_of="actor")


@pytest.mark.parametrize(
    "network, changes",
    [
        (replace(LSTM, rnn_layers=2), {}),
        (GRU, {"sampling": "prioritized", "advantage": "vtrace"}),
    ],
)
def test_recurrent_ratio_is_one_at_zero_learning_rate(network, changes):
    """Acting and training agree on the carry at every step, across segments and episodes."""
    _, experience = collected(network, 4)
    ended = np.asarray(experience.terminated | experience.truncated)
    assert ended[1:3].any() and ended[5:7].any()  # inside both segments
    assert all(np.any(leaf[1]) for leaf in jax.tree.leaves(experience.carry))
    _, metrics = learner_after(replace(FIXED, **changes), network)
    assert float(metrics["train/approx_kl"].total) < 1e-11
    assert float(metrics["train/clip_fraction"].total) == 0.0


def test_vtrace_equals_gae_while_the_policy_is_unchanged():
    """All ratios are one: the means of the gradients agree, of minibatches of segments."""
    config = replace(FIXED, sampling="prioritized")
    plain, _ = learner_after(config, GRU)
    traced, _ = learner_after(replace(config, advantage="vtrace"), GRU)
    plain, traced = flat(plain.optimizer), flat(traced.optimizer)
    assert np.abs(plain).max() > 0.1
    np.testing.assert_allclose(traced, plain, rtol=1e-3, atol=1e-5)


@functools.cache
def batch_of(horizon):
    """Return settings, learner, rollout and batch for V-trace on one rollout."""
    config = replace(CONFIG, advantage="vtrace", bptt_horizon=horizon, normalize_value=True)
    state, experience = collected(SMALL)
    stats = normalizer.update(state.learner.value_stats, jnp.arange(9.0))
    learner = state.learner.replace(value_stats=stats)
    batch, _ = jax.jit(functools.partial(make_batch, _ppo(config)))(
        learner, experience, experience.reward, ()
    )
    return config, learner, experience, batch


def _ppo(config):
    return PPO(config, ENV, actor_critic.build(ENV.spec, SMALL), total_iterations=1)


@pytest.mark.parametrize("horizon", [None, 4, 1])
def test_vtrace_at_ratio_one_equals_gae_for_any_segment_length(horizon):
    config, learner, _, batch = batch_of(horizon)
    cache = ppo_update.init_cache(config, batch)
    found = ppo_update.vtrace_advantages(config, learner, batch, cache)
    np.testing.assert_allclose(found, batch.advantage, rtol=1e-4, atol=1e-4)
    whole = segments.join(batch.advantage, config.rollout_length)
    np.testing.assert_allclose(whole, batch_of(None)[3].advantage, rtol=1e-5, atol=1e-5)


def test_vtrace_continues_into_the_next_segment():
    """The rest of the rollout enters with its cached ratios and values."""
    config, learner, experience, batch = batch_of(4)
    ratio = jax.random.uniform(jax.random.key(1), batch.value.shape, minval=0.5, maxval=1.5)
    cache = ppo_update.init_cache(config, batch)._replace(ratio=ratio)
    rows = jnp.arange(0, 32, 2)[None]  # the first segment of every row, not the second
    params = jax.tree.map(lambda x: x * 1.5, learner.params)  # other ratios than those stored
    sample = jax.jit(functools.partial(ppo_update.sample, _ppo(config)))
    part, after = sample(learner, params, batch, cache, rows, jnp.zeros(()))
    np.testing.assert_array_equal(after.ratio[:, 1::2], ratio[:, 1::2])
    moved = np.asarray(after.ratio[:, ::2])
    assert np.abs(moved - ratio[:, ::2]).max() > 0.1 and np.abs(moved - 1).max() > 0.01
    mean, std = learner.value_stats.mean, normalizer.std(learner.value_stats)
    clipped = jnp.minimum(segments.join(after.ratio, 8), 1.0)
    value, next_value = (
        segments.join(x, 8) * std + mean for x in (batch.value, batch.vtrace.next_value)
    )
    ends = experience.terminated, experience.truncated
    settings = {"gamma": learner.hparams["gamma"], "lam": learner.hparams["lam"]}
    expected, _ = gae(
        experience.reward, value, next_value, *ends, rho=clipped, c=clipped, **settings
    )
    np.testing.assert_allclose(part.advantage, expected[:4], rtol=1e-4, atol=1e-4)


def test_vtrace_clips_ratios_of_the_updated_policy():
    config = replace(CONFIG, sampling="uniform", advantage="vtrace", learning_rate=1e-2)
    free = params_after(config, rho_clip=100.0, c_clip=100.0)
    bound, metrics = learner_after(config)
    assert metrics["train/clip_fraction"].total > 0
    assert np.abs(free - flat(bound.params)).max() > 1e-5


def test_prioritized_sampling_with_alpha_zero_is_uniform():
    config = replace(CONFIG, sampling="uniform", advantage="vtrace")
    uniform, config = params_after(config), replace(config, sampling="prioritized")
    np.testing.assert_allclose(params_after(config, prio_alpha=0.0), uniform, atol=1e-6)
    assert np.abs(params_after(config, prio_alpha=1.0) - uniform).max() > 1e-5


def test_teacher_kl_decreases_and_needs_a_teacher():
    network = actor_critic.build(ENV.spec, SMALL).actor
    state, experience = collected(SMALL)
    params = jax.tree.map(lambda x: x, state.learner.params["actor"])
    params["params"]["head"]["bias"] += 0.5
    teacher = ppo.Teacher(network, policies.PolicyParams(params, normalizer.init(ENV.spec.obs)))
    config = replace(CONFIG, learning_rate=1e-2, teacher="run", teacher_coef=10.0)
    learn = jax.jit(build(config, teacher=teacher).learn)
    hparams = {name: jnp.float32(x) for name, x in metadata.traced(config).items()}
    learner, kl = state.learner.replace(hparams=hparams, teacher=teacher.params), []
    state = state.replace(learner=learner)
    for _ in range(10):
        state, metrics = learn(state, experience)
        kl.append(float(metrics["train/teacher_kl"].total))
    assert kl[-1] < 0.2 * kl[0]
    _, without = jax.eval_shape(build().learn, *collected(SMALL))
    assert "train/approx_kl" in without and "train/teacher_kl" not in without


def _mean_return(env, network, iterations, **settings):
    """Train; return the mean episode return of the last ten iterations."""
    networks = actor_critic.build(env.spec, network)
    config = PPOConfig(gamma=0.9, num_minibatches=4, normalize_obs=False, **settings)
    algorithm = ppo.make(config, env, networks, iterations)

    @jit_for_long
    def run(key):
        return jax.lax.scan(
            lambda s, _: algorithm.train_step(s), algorithm.init(key), length=iterations
        )

    _, metrics = run(jax.random.key(0))
    reward = metrics["rollout/ep_rew_mean"]
    return float(jnp.sum(reward.total[-10:]) / jnp.sum(reward.count[-10:]))


@pytest.mark.learning
def test_recurrent_policy_solves_recall():
    """The cue is 64 or more steps old: older than a segment of 16 and a rollout of 32."""
    env = VectorEnv(recall.Recall(), 32, 80, pool_size=64)
    network = NetworkConfig((16,), (16,), rnn="lstm", rnn_size=16)
    settings = {"rollout_length": 32, "bptt_horizon": 16, "entropy_coef": 0.01}
    # All of four seeds end above 79; without a decaying rate, some lose it again.
    found = _mean_return(env, network, 60, learning_rate=5e-3, schedule="linear", **settings)
    assert found > 76  # of 80


def test_recall_needs_memory():
    """Only the first observation shows the symbol; without memory, one action in four is right."""

    @jax.jit
    @jax.vmap
    def play(key):
        start = recall.Recall().reset(key)
        after = recall.Recall().step(start, jnp.int32(0))
        return start.obs, after.obs, recall.Recall().step(after, jnp.int32(0)).obs

    first, *later = play(jax.random.split(jax.random.key(0), 40))
    assert len(np.unique(first, axis=0)) == 4
    for obs in later:
        np.testing.assert_array_equal(obs, np.zeros((40, 4)))
