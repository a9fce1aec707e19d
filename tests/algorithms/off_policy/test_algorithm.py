"""One off-policy iteration: update intervals, keys, warm-up and reward models."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.off_policy import algorithm as off_policy
from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm
from jaxrl.algorithms.off_policy.replay import ReplayBuffer
from jaxrl.algorithms.off_policy.reward_model import RewardModel
from jaxrl.config import OffPolicyConfig
from jaxrl.learning import normalizer
from jaxrl.learning.episode_index import EpisodeSamples
from jaxrl.learning.replay_buffer import Transition
from jaxrl.types import ActionSpec, EnvSpec, Mean, Rollout, TrainState

B, BATCHES = 4, 2
CONFIG = OffPolicyConfig(
    train_batches=BATCHES,
    target_update_interval=2,
    max_grad_norm=0.0,
    warmup=10,
    normalize_obs=True,
)
HPARAMS = {"pi_lr": 0.1, "q_lr": 0.2, "r_lr": 0.4, "polyak": 0.75, "reward_scale": 3.0}
OBS = jnp.zeros(1)


def _losses(params, target_params, batch, key, hparams):
    """Pull "a" to the mean reward, "b" to the mean next observation plus the target network."""
    gap = params["a"]["x"] - jnp.mean(batch.reward)
    next_gap = params["b"]["x"] - jnp.mean(batch.next_obs) - target_params["b"]["x"]
    total = jnp.sum(jnp.square(gap)) + jnp.sum(jnp.square(next_gap))
    return total, {"train/reward": Mean.of(jnp.mean(batch.reward))}


ALGORITHM = OffPolicyAlgorithm(
    init=lambda key: {"a": {"x": jnp.ones(1)}, "b": {"x": jnp.ones(2)}},
    losses=_losses,
    actor="a",
    targets=("b",),
    rates={"a": "pi_lr", "b": "q_lr"},
    every={"a": 3},
    explore=lambda progress, params: params | {"epsilon": progress},
)


def _steps(batches=None):
    random = np.random.default_rng(0)
    lead = (B,) if batches is None else (batches, B)
    obs, next_obs = jnp.float32(random.normal(size=(2, *lead, 1)))
    reward = jnp.float32(random.normal(size=lead))
    return Transition(obs, jnp.zeros(lead), reward, jnp.zeros(lead, bool), next_obs)


def _learning(config=CONFIG, model=None, size=10, **parts):
    functions = {
        "add": lambda replay, experience: replay + 1.0,
        "size": lambda replay: jnp.int32(size),
        "sample": lambda replay, key, batches, gamma: _steps(batches),
        "empty": lambda: jnp.float32(0.0),
    }
    buffer: Any = SimpleNamespace(spec=SimpleNamespace(obs=OBS), **functions | parts)
    actor = SimpleNamespace(initial_carry=lambda number: ())
    networks: Any = SimpleNamespace(actor=actor, exploration=None, clip_obs=10.0)
    return off_policy.OffPolicy(config, networks, ALGORITHM, model, buffer, 20)


ENV: Any = SimpleNamespace(rows=1, reset=lambda key, pool: (), first_curriculum=())


def _learner(learning, **changes):
    learner = off_policy.init(learning, ENV, jax.random.key(0)).learner
    hparams = learner.hparams | {name: jnp.float32(x) for name, x in HPARAMS.items()}
    return learner.replace(hparams=hparams, **changes)


def _vectors(learner, updates=0):
    flat = {name: jnp.ravel(tree["x"]) for name, tree in learner.params.items()}
    target_params = {"b": jnp.array([5.0, 6.0])}
    three = jnp.int32(3)
    return learner.replace(
        params=flat,
        target_params=target_params,
        updates=jnp.int32(updates),
        skipped_updates=three,
        nonfinite_streak=three,
    )


@pytest.mark.parametrize("updates", range(6))
def test_each_network_updates_at_its_own_rate_and_interval(updates):
    learning = _learning()
    learner = _vectors(_learner(learning), updates)
    grads = {"a": jnp.array([2.0]), "b": jnp.array([-3.0, 4.0])}
    after, metrics = off_policy.apply_grads(learning, learner, grads, {})
    # Adam's first step is the gradient's sign.
    a = 1.0 - (0.1 if updates % 3 == 0 else 0.0)
    b = np.array([1.0 + 0.2, 1.0 - 0.2])
    np.testing.assert_allclose(after.params["a"], [a], rtol=1e-4)
    np.testing.assert_allclose(after.params["b"], b, rtol=1e-4)
    moves = (updates + 1) % 2 == 0
    expected = 0.75 * np.array([5.0, 6.0]) + 0.25 * b if moves else [5.0, 6.0]
    np.testing.assert_allclose(after.target_params["b"], expected, rtol=1e-4)
    assert int(after.updates) == updates + 1
    assert int(after.skipped_updates) == 3 and int(after.nonfinite_streak) == 0
    found = {name: float(m.total) for name, m in metrics.items()}
    assert found == pytest.approx({"train/a_grad_norm": 2.0, "train/b_grad_norm": 5.0})
    # A network that skips this step keeps its optimizer state too.
    moments = {name: np.abs(jax.tree.leaves(after.optimizer[name])[1]).max() for name in grads}
    assert (moments["a"] > 0) == (updates % 3 == 0) and moments["b"] > 0


def test_one_non_finite_gradient_skips_all_networks():
    learning = _learning()
    learner = _vectors(_learner(learning))
    grads = {"a": jnp.array([2.0]), "b": jnp.array([jnp.nan, 4.0])}
    after, _ = off_policy.apply_grads(learning, learner, grads, {})
    for name in grads:
        np.testing.assert_array_equal(after.params[name], learner.params[name])
    assert (
        int(after.skipped_updates) == 4
        and int(after.nonfinite_streak) == 4
        and int(after.updates) == 1
    )


def _model():
    """A reward of r × next observation; the loss pulls r to the mean return."""

    def loss(params, samples):
        total = jnp.sum(jnp.square(params["x"] - jnp.mean(samples.episode_return)))
        return total, {"train/R_loss": Mean.of(total)}

    return RewardModel(
        init=lambda key: {"x": jnp.full(1, 2.0)},
        reward=lambda params, steps: params["x"] * steps.next_obs[..., 0],
        loss=loss,
    )


def _gradients(learning, batch, learner):
    """Return the gradients that a step applies, from the first moments of Adam."""
    unravel = {name: lambda vector: {"x": vector} for name in learner.params}
    after, metrics = off_policy.gradient_step(learning, unravel, learner, batch)
    # The first array of the state is Adam's count, the second a tenth of the gradient.
    means = {name: jax.tree.leaves(after.optimizer[name])[1] / 0.1 for name in learner.params}
    return means, {name: float(m.total) for name, m in metrics.items()}


def test_losses_use_scaled_rewards_and_target_networks():
    learning, steps = _learning(), _steps()
    learner = _vectors(_learner(learning))
    batch = off_policy.Batch(steps, (), jax.random.key(0))
    found, metrics = _gradients(learning, batch, learner)
    reward = 3.0 * float(steps.reward.mean())
    np.testing.assert_allclose(found["a"], [2 * (1.0 - reward)], rtol=1e-4)
    expected = 2 * (1.0 - float(steps.next_obs.mean()) - np.array([5.0, 6.0]))
    np.testing.assert_allclose(found["b"], expected, rtol=1e-4)
    assert metrics["train/reward"] == pytest.approx(reward, rel=1e-4)


def test_learned_reward_replaces_env_reward_and_has_its_own_loss():
    learning, steps = _learning(model=_model()), _steps()
    learner = _vectors(_learner(learning))
    samples = EpisodeSamples((), jnp.ones(2), jnp.array([7.0, 9.0]))
    found, metrics = _gradients(
        learning, off_policy.Batch(steps, samples, jax.random.key(0)), learner
    )
    reward = 3.0 * 2.0 * float(steps.next_obs.mean())
    np.testing.assert_allclose(found["a"], [2 * (1.0 - reward)], rtol=1e-4)
    np.testing.assert_allclose(found["reward"], [2 * (2.0 - 8.0)], rtol=1e-4)
    assert metrics["train/R_loss"] == pytest.approx(36.0) and "train/reward" in metrics
    assert "train/reward_grad_norm" in metrics


def _experience():
    obs = jnp.arange(6.0).reshape(3, 2, 1)
    nothing: Any = ()
    episodes = {"rollout/ep": Mean.of(jnp.float32(4.0))}
    return Rollout(obs, *[nothing] * 7, episodes)  # type: ignore[arg-type]


def _state(learning, iteration=4):
    state = off_policy.init(learning, ENV, jax.random.key(0))
    return state.replace(iteration=jnp.int32(iteration), learner=_learner(learning))


@pytest.mark.parametrize("size, learns", [(0, False), (1, True)])
def test_without_warmup_one_stored_step_starts_learning(size, learns):
    learning = _learning(replace(CONFIG, warmup=0), size=size)
    after, _ = off_policy.learn(learning, _state(learning), _experience())
    assert int(after.learner.updates) == (BATCHES if learns else 0)


def test_collecting_and_learning_use_separate_keys(monkeypatch):
    """Collecting folds 2 × iteration into `key`, learning folds 2 × iteration + 1."""
    seen = {}

    def collect(env, policy, params, collector, key, length, pool):
        seen["key"] = key
        seen["args"] = policy, length, pool, params.actor
        return collector.replace(carry=jnp.float32(7.0)), _experience()

    def sample(replay, key, batches, gamma):
        return _steps(batches)._replace(reward=jax.random.uniform(key, (batches, B)))

    monkeypatch.setattr(off_policy, "collect", collect)
    monkeypatch.setattr(off_policy, "make_policy", lambda networks, deterministic: deterministic)
    learning = _learning(sample=sample)
    for iteration in (4, 5):
        state = _state(learning, iteration)
        after, metrics = off_policy.train_step(learning, ENV, state, "pool")
        expected = jax.random.fold_in(state.key, 2 * iteration)
        np.testing.assert_array_equal(*map(jax.random.key_data, (seen["key"], expected)))
        assert seen["args"][:3] == (False, CONFIG.rollout_length, "pool")
        assert seen["args"][3] is state.learner.params["a"]
        assert float(after.collector.carry) == 7.0
        key = jax.random.split(jax.random.fold_in(state.key, 2 * iteration + 1), 4)[0]
        reward = 3.0 * float(jax.random.uniform(key, (BATCHES, B)).mean())
        found = metrics["train/reward"]
        assert float(found.total / found.count) == pytest.approx(reward, rel=1e-4)


@pytest.mark.parametrize("size", [9, 10])
@pytest.mark.parametrize("normalize", [True, False])
def test_learning_starts_after_warmup(size, normalize):
    learning = _learning(replace(CONFIG, normalize_obs=normalize), size=size)
    state: TrainState = _state(learning)
    after, metrics = off_policy.learn(learning, state, _experience())
    learner, enough = after.learner, size >= 10
    assert int(after.iteration) == 5 and float(after.collector.replay) == 1.0
    assert int(learner.updates) == (BATCHES if enough else 0)
    moved = not np.array_equal(learner.params["b"]["x"], np.ones(2))
    assert moved is enough
    assert float(metrics["train/reward"].count) == (BATCHES if enough else 0)
    assert float(metrics["replay/steps"].total) == size
    assert float(metrics["rollout/ep"].total) == 4.0
    # Exploration follows progress once learning has started: 5 of 20 iterations are done.
    assert float(learner.params["a"]["epsilon"]) == (0.25 if enough else 0.0)
    assert float(learner.obs_stats.count) == (6.0 if normalize else 0.0)
    if normalize:
        np.testing.assert_allclose(learner.obs_stats.mean, [2.5])


def test_update_normalizes_and_applies_batches_in_order():
    """Two steps of Adam, each on its own batch."""
    learning = _learning()
    stats = normalizer.RunningStats(jnp.float32(5), jnp.float32([0.5]), jnp.float32([4.0]))
    learner = _learner(learning, obs_stats=stats)
    after, metrics = off_policy.update(learning, learner, (), jax.random.key(1))
    steps = _steps(BATCHES)
    assert float(metrics["train/reward"].total) == pytest.approx(
        3.0 * float(steps.reward.mean()) * 2
    )
    assert int(after.updates) == 2
    # "b" is pulled to the target network plus the normalized next observation.
    b, target_params = np.ones(2), np.ones(2)
    mean, square = np.zeros(2), np.zeros(2)
    for i in range(BATCHES):
        next_mean = np.mean((np.asarray(steps.next_obs[i]) - 0.5) / 2.0)
        grad = 2 * (b - next_mean - target_params)
        mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
        t = i + 1
        b = b - 0.2 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(after.params["b"]["x"], b, rtol=1e-3)
    np.testing.assert_allclose(
        after.target_params["b"]["x"], 0.75 * target_params + 0.25 * b, rtol=1e-3
    )


def test_closed_form_update_runs_before_gradient_steps():
    """Episodes and step samples are both normalized: 7 becomes 3, and 11 becomes 5."""

    def update(params, episodes):
        return {"x": params["x"] + jnp.mean(episodes.steps.obs) * episodes.length}

    def sample_episodes(replay, key, batches):
        assert batches == BATCHES
        return EpisodeSamples(
            _steps()._replace(obs=jnp.full((B, 1), 7.0)), jnp.ones(1), jnp.ones(1)
        )

    def sample_steps(replay, key, batches):
        steps = _steps(batches)._replace(obs=jnp.full((batches, B, 1), 11.0))
        return EpisodeSamples(steps, jnp.ones((batches, 1)), jnp.full((batches, 1), 2.0))

    def loss(params, samples):
        return _model().loss(
            params, samples._replace(episode_return=jnp.mean(samples.steps.obs) + 0.0)
        )

    model = _model()._replace(update=update, loss=loss)
    learning = _learning(model=model, sample_episodes=sample_episodes, sample_steps=sample_steps)
    stats = normalizer.RunningStats(jnp.float32(5), jnp.float32([1.0]), jnp.float32([4.0]))
    learner = _learner(learning, obs_stats=stats)
    frozen = learner.replace(hparams=learner.hparams | {"r_lr": jnp.float32(0.0)})
    after, metrics = off_policy.update(learning, frozen, (), jax.random.key(1))
    # 2 plus 3 from the closed-form update; samples have the same target, so the loss is 0.
    np.testing.assert_allclose(after.params["reward"]["x"], [5.0])
    assert float(metrics["train/R_loss"].total) == 0.0


def test_normalized_rewards_are_divided_by_the_scale_of_returns():
    """Against a loop over two rollouts, with an episode that goes on from one to the other."""
    learning, gamma = _learning(replace(CONFIG, normalize_reward=True)), 0.5
    plain = ALGORITHM._replace(explore=lambda progress, params: params)
    learning = replace(learning, algorithm=plain)
    random = np.random.default_rng(2)
    rewards = np.float32(random.normal(1.0, 2.0, size=(2, 3, 1)))
    ends = np.array([False, True, False, False, False, True]).reshape(2, 3, 1)
    steps, same = _steps(), jnp.ones((3, 1, 1))

    @jax.jit
    def learn(state, reward, ended):
        rollout = Rollout(same, same, reward, ended, ended & False, same, (), (), {})
        after, metrics = off_policy.learn(learning, state, rollout)
        scaled = off_policy.scale_rewards(learning, after.learner, steps).reward
        return after, scaled, metrics["train/reward"].total

    state = off_policy.init(learning, ENV, jax.random.key(0))
    hparams = state.learner.hparams | {"gamma": jnp.float32(gamma), "reward_scale": jnp.float32(3)}
    state = state.replace(learner=state.learner.replace(hparams=hparams))
    returns, running, divisor = [], 0.0, 1.0
    for reward, ended in zip(rewards, ends, strict=True):
        state, scaled, total = learn(state, reward, ended)
        # An iteration learns with the scale before it, as with the other statistics.
        sampled = np.asarray(_steps(BATCHES).reward)
        np.testing.assert_allclose(total, 3.0 / divisor * sampled.mean(1).sum(), rtol=1e-4)
        for r, end in zip(reward[:, 0], ended[:, 0], strict=True):
            running = gamma * running + r
            returns.append(running)
            running = 0.0 if end else running
        divisor = max(np.std(returns), np.abs(returns).max() / 5.0)
        np.testing.assert_allclose(scaled, 3.0 * steps.reward / divisor, rtol=1e-4)


def test_ircr_learns_from_normalized_returns():
    """Episodes return −2, 2 and 6: their steps have rewards 0, ½ and 1 before scaling."""
    settings = {"reward": "ircr", "rollout_length": 4, "buffer_size": 8, "batch_size": 16}
    config = replace(CONFIG, warmup=1, **settings)
    spec = EnvSpec(jax.ShapeDtypeStruct((1,), jnp.float32), ActionSpec(1, False))
    learning = replace(_learning(config), buffer=ReplayBuffer(config, spec, 2, 4, 1))
    ended = jnp.array([[False, False], [False, True], [False, False], [True, True]])
    same, nothing = jnp.ones((4, 2, 1)), ()
    experience: Any = Rollout(
        obs=same,
        action=same,
        reward=jnp.array([[5.0, -3.0], [-1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]),
        terminated=ended,
        truncated=ended & False,
        next_obs=same,
        extras=nothing,
        carry=nothing,
        episodes={},
    )

    @jax.jit
    def learn(key):
        state = off_policy.init(learning, ENV, key).replace(learner=_learner(learning))
        after, metrics = off_policy.learn(learning, state, experience)
        key_steps = jax.random.split(state.key_for(off_policy._LEARN, off_policy._NUM_KEYS), 4)[0]
        drawn = learning.buffer.sample(after.collector.replay, key_steps, BATCHES)
        return after.learner.optimizer["a"], metrics["train/reward"].total, drawn.reward

    optimizer, total, returns = learn(jax.random.key(0))
    assert set(np.unique(returns)) == {-2.0, 2.0, 6.0}
    reward = np.mean(3.0 * (np.asarray(returns) + 2.0) / 8.0, axis=1)
    assert float(total) == pytest.approx(reward.sum(), rel=1e-5)
    # "a" is updated in the first step only; Adam's first moment is a tenth of its gradient.
    np.testing.assert_allclose(jax.tree.leaves(optimizer)[1], [0.2 * (1.0 - reward[0])], rtol=1e-4)


@pytest.mark.parametrize("reward", ["ircr", "rrd"])
def test_ircr_excludes_rows_that_start_mid_episode(reward):
    """Two rows per environment; an age equal to the ring's length marks an unknown start."""
    config = replace(CONFIG, reward=reward, rollout_length=4, buffer_size=6 * 4)
    buffer = ReplayBuffer(config, EnvSpec(OBS, ActionSpec(1, False)), 6, 4, 1)
    learning = replace(_learning(config), buffer=buffer)
    replay = off_policy._empty_replay(learning, 6, SimpleNamespace(age=jnp.array([0, 1, 3])))
    expected = [0, 0, 4, 4, 4, 4] if reward == "ircr" else [0] * 6
    np.testing.assert_array_equal(replay.index.current_age, expected)
    # Gymnasium environments have no age: their episodes start at step 0.
    np.testing.assert_array_equal(
        off_policy._empty_replay(learning, 6, SimpleNamespace()).index.current_age, 0
    )


def test_initial_state():
    learning = _learning(model=_model())
    state = off_policy.init(learning, ENV, jax.random.key(0))
    learner = state.learner
    assert learner.params.keys() == {"a", "b", "reward"} and learner.target_params.keys() == {"b"}
    np.testing.assert_array_equal(learner.target_params["b"]["x"], learner.params["b"]["x"])
    for counter in (
        state.iteration,
        learner.updates,
        learner.skipped_updates,
        learner.nonfinite_streak,
    ):
        assert int(counter) == 0
    assert int(learner.total_iterations) == 20 and float(learner.obs_stats.count) == 0.0
    assert float(learner.hparams["gamma"]) == pytest.approx(CONFIG.gamma)
    policy_params = off_policy.policy_params(learning, learner)
    assert (
        policy_params.actor is learner.params["a"] and policy_params.obs_stats is learner.obs_stats
    )
