"""RRD reward models: the loss on samples of episodes, and training on recorded episodes."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms.off_policy import offline, reward_model
from jaxrl.algorithms.off_policy.algorithm import OffPolicy
from jaxrl.config import OffPolicyConfig, RRDConfig
from jaxrl.learning import normalizer
from jaxrl.learning.episode_index import EpisodeSamples
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.reward_network import RewardNetwork
from jaxrl.types import Mean

E, K = 3, 2


def _predict(params, obs, action, next_obs):
    return params * (obs + 2 * action + 3 * next_obs)[..., 0]


def _samples():
    random = np.random.default_rng(0)
    obs, action, next_obs = jnp.float32(random.normal(size=(3, E, K, 1)))
    nothing = jnp.zeros((E, K))
    steps = Transition(obs, action, nothing, nothing, next_obs)
    return EpisodeSamples(steps, jnp.array([4, 5, 2]), jnp.float32(random.normal(size=E)))


@pytest.mark.parametrize("whole_return", [False, True])
@pytest.mark.parametrize("corrected", [False, True])
def test_loss_and_metrics_match_loops(whole_return, corrected):
    config = RRDConfig(whole_return=whole_return, bias_correction=corrected)
    model = reward_model.rrd_model(config, RewardNetwork(lambda key: "params", _predict))
    samples = _samples()
    error = variance = 0.0
    for e, (length, episode_return) in enumerate(zip(*map(np.asarray, samples[1:]), strict=True)):
        steps = samples.steps
        predicted = 0.5 * np.asarray(steps.obs + 2 * steps.action + 3 * steps.next_obs)[e, :, 0]
        scale = float(length) ** 2 if whole_return else 1.0
        error += scale * (predicted.mean() - episode_return / length) ** 2 / E
        variance += scale * (1 - K / length) * predicted.var(ddof=1) / K / E
    loss, metrics = model.loss(jnp.float32(0.5), samples)
    np.testing.assert_allclose(loss, error - variance if corrected else error, rtol=1e-4)
    found = {name: float(m.total) for name, m in metrics.items()}
    expected = {"train/R_loss": error, "train/R_var": variance, "train/R_fit": error - variance}
    assert found == pytest.approx(expected, rel=1e-4)
    assert model.update is None and model.init(None) == "params"
    grad = jax.grad(lambda p: model.loss(p, samples)[1]["train/R_loss"].total)(jnp.float32(0.5))
    assert float(grad) == 0.0  # metrics have no gradient


def test_closed_form_update_gets_normalized_episodes():
    def update(params, obs, action, next_obs, length, episode_return):
        return {"params": params, "inputs": (obs, action, next_obs, length, episode_return)}

    config, samples = RRDConfig(), _samples()
    model = reward_model.rrd_model(config, RewardNetwork(lambda key: 0, _predict, update))

    def normalize(steps):
        return steps._replace(obs=steps.obs + 10.0)

    found = reward_model.update_params(model, 7, lambda: samples, normalize)
    steps = samples.steps
    expected = (
        steps.obs + 10.0,
        steps.action,
        steps.next_obs,
        samples.length,
        samples.episode_return,
    )
    assert found["params"] == 7
    jax.tree.map(np.testing.assert_array_equal, found["inputs"], expected)

    def fail():
        raise AssertionError("episodes were sampled though nothing is solved in closed form")

    plain = reward_model.rrd_model(config, RewardNetwork(lambda key: 0, _predict))
    assert reward_model.update_params(plain, 7, fail, normalize) == 7


BATCHES = 3
STATS = normalizer.RunningStats(jnp.float32(4), jnp.float32([1.0]), jnp.float32([0.25]))


def _learning(normalize=True, reward=lambda samples: samples.episode_return, **samplers):
    """A reward of two parameters fitted to samples; `update` adds the mean of episodes."""
    config = OffPolicyConfig(
        train_batches=BATCHES,
        r_lr=0.05,
        normalize_obs=normalize,
        max_grad_norm=0.0,
        adam_epsilon=1e-6,
    )

    def loss(params, samples):
        gap = params["w"] - jnp.mean(samples.steps.obs) * jnp.ones(2)
        total = jnp.sum(jnp.square(gap)) * jnp.mean(reward(samples))
        return total, {"train/R_loss": Mean.of(total)}

    def update(params, whole):
        return {"w": params["w"] + jnp.mean(whole.steps.obs)}

    model = reward_model.RewardModel(
        lambda key: {"w": jnp.ones(2)}, lambda params, steps: steps.reward, loss, update
    )

    def sample(replay, key, batches):
        assert batches == BATCHES
        return jax.tree.map(lambda x: jnp.stack([x, 2 * x, 4 * x]), replay)

    samplers = {"sample_steps": sample, "sample_episodes": sample} | samplers
    buffer: Any = SimpleNamespace(spec=SimpleNamespace(obs=jnp.zeros(1)), **samplers)
    networks: Any = SimpleNamespace(
        actor=SimpleNamespace(initial_carry=lambda number: ()), clip_obs=10.0
    )
    run = OffPolicy(config, networks, offline.REWARD_ONLY, model, buffer, 9)
    return offline.make(run, STATS)


@pytest.mark.parametrize("normalize", [True, False])
def test_reward_is_learned_from_recorded_episodes(normalize):
    learning = _learning(normalize)
    state = learning.init(jax.random.key(0))
    samples = _samples()._replace(episode_return=jnp.float32([1.0, 2.0, 3.0]))
    after, metrics = learning.train_step(state, samples)
    obs = np.stack([1, 2, 4])[:, None] * np.asarray(samples.steps.obs).reshape(1, -1)
    if normalize:
        obs = np.clip((obs - 1.0) / 0.5, -10, 10)
    params, transform = np.ones(2) + obs.mean(), optax.adam(0.05, eps=1e-6)
    inner, losses, norms = transform.init(jnp.ones(2)), [], []
    for i, scale in enumerate((1.0, 2.0, 4.0)):
        gap, weight = params - obs[i].mean(), 2.0 * scale
        losses.append(weight * np.sum(gap**2))
        grads = jnp.float32(2 * weight * gap)
        norms.append(float(jnp.linalg.norm(grads)))
        updates, inner = transform.update(grads, inner)
        params = params + np.asarray(updates)
    np.testing.assert_allclose(after.learner.params["reward"]["w"], params, rtol=1e-4)
    found = {name: float(m.total / m.count) for name, m in metrics.items()}
    expected = {"train/R_loss": np.mean(losses), "train/reward_grad_norm": np.mean(norms)}
    assert found == pytest.approx(expected, rel=1e-4)
    assert int(after.iteration) == 1 and int(after.learner.total_iterations) == 9
    assert int(after.learner.skipped_updates) == int(after.learner.nonfinite_streak) == 0
    assert learning.policy_params is None
    reward_params = learning.reward_params(after.learner)
    assert reward_params.reward is after.learner.params["reward"]
    assert float(reward_params.obs_stats.count) == (4.0 if normalize else 0.0)


@pytest.mark.parametrize("iteration", [0, 3])
def test_step_and_episode_samples_use_separate_keys(iteration):
    """Both are split from the key of the iteration."""
    used, samples = {}, _samples()

    def sample(name, replay, key, batches):
        used[name] = key
        return jax.tree.map(lambda x: jnp.stack([x] * batches), samples)

    samplers = {f"sample_{name}": partial(sample, name) for name in ("steps", "episodes")}
    learning = _learning(**samplers)
    state = learning.init(jax.random.key(5)).replace(iteration=jnp.int32(iteration))
    learning.train_step(state, samples)
    keys = jax.random.split(jax.random.fold_in(state.key, iteration), 4)
    for expected, name in ((keys[1], "steps"), (keys[3], "episodes")):
        np.testing.assert_array_equal(*map(jax.random.key_data, (used[name], expected)))


def test_non_finite_reward_gradients_are_counted():
    learning = _learning(reward=lambda samples: jnp.where(samples.episode_return > 3, jnp.nan, 1.0))
    state = learning.init(jax.random.key(0))
    # Returns double with every batch: the last one has a NaN, or the last two.
    for episode_return, skipped_updates, streak in ((1.0, 1, 1), (2.0, 2, 2)):
        samples = _samples()._replace(episode_return=jnp.full(E, episode_return))
        after, _ = learning.train_step(state, samples)
        assert (
            int(after.learner.skipped_updates) == skipped_updates
            and int(after.learner.nonfinite_streak) == streak
        )
        assert np.isfinite(after.learner.params["reward"]["w"]).all()
    again, _ = learning.train_step(after, _samples()._replace(episode_return=jnp.ones(E) * 0.1))
    assert int(again.learner.skipped_updates) == 2 and int(again.learner.nonfinite_streak) == 0
