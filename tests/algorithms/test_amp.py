"""AMP: the style reward, the discriminator's training and its replay of agent motion."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms.amp import AMP, _Motion
from jaxrl.config import AMPConfig
from jaxrl.learning import discriminator
from jaxrl.types import Rollout

SIZE, STEPS, ROWS = 6, 4, 5
CONFIG = AMPConfig(
    weight=0.7,
    task_weight=0.3,
    hidden=(16,),
    batch_size=64,
    updates=10,
    replay=32,
    learning_rate=1e-2,
)


def demonstrations(key, number):
    return 2.0 + jax.random.normal(key, (number, SIZE))


@pytest.fixture(scope="module")
def amp():
    return AMP(CONFIG, demonstrations, SIZE)


@pytest.fixture(scope="module")
def first(amp):
    """The initial state."""
    return jax.jit(amp.init)(jax.random.key(0))


@pytest.fixture(scope="module")
def learn(amp):
    return jax.jit(amp.learn)


@pytest.fixture(scope="module")
def reward_of(amp):
    return jax.jit(amp.reward)


@pytest.fixture(scope="module")
def small():
    """The initial state and the compiled update, with a small replay and one gradient step."""
    amp = AMP(replace(CONFIG, replay=8, updates=1), demonstrations, SIZE)
    return jax.jit(amp.init)(jax.random.key(0)), jax.jit(amp.learn)


def rollout(seed, shift=0.0):
    random = np.random.default_rng(seed)
    features = jnp.asarray(shift + random.normal(size=(STEPS, ROWS, SIZE)), jnp.float32)
    reward = jnp.asarray(random.normal(size=(STEPS, ROWS)), jnp.float32)
    # The reward depends on the next observation only: the current one is NaN.
    before = jnp.full_like(features, jnp.nan)
    return Rollout({"amp": before}, (), reward, (), (), {"amp": features}, (), (), {})


def test_each_step_is_rewarded_for_its_own_history(first, learn, reward_of):
    state, _ = learn(first, rollout(0), jax.random.key(1))
    experience = rollout(3)
    together = reward_of(state, experience)
    assert together.shape == (STEPS, ROWS)
    assert len(np.unique(np.asarray(together))) == STEPS * ROWS
    for t in range(STEPS):
        for row in range(ROWS):
            one = jax.tree.map(lambda x, t=t, row=row: x[t : t + 1, row : row + 1], experience)
            alone = reward_of(state, one)
            np.testing.assert_allclose(together[t, row], alone[0, 0], rtol=1e-5)


def test_task_and_style_rewards_are_weighted(first, reward_of):
    state, experience = first, rollout(0)
    style = reward_of(state, experience._replace(reward=jnp.zeros((STEPS, ROWS))))
    mixed = reward_of(state, experience)
    np.testing.assert_allclose(mixed - style, 0.3 * experience.reward, rtol=1e-4, atol=1e-5)


def test_discriminator_learns_and_rewards_realistic_motion(first, learn, reward_of):
    state = first
    for i in range(20):
        state, metrics = learn(state, rollout(i, shift=-2.0), jax.random.key(i))
    accuracy = {k: float(m.total / m.count) for k, m in metrics.items()}
    assert accuracy["amp/demo_accuracy"] > 0.95
    assert accuracy["amp/agent_accuracy"] > 0.95
    real = reward_of(state, rollout(99, shift=2.0)).mean()
    unreal = reward_of(state, rollout(99, shift=-2.0)).mean()
    assert real > unreal + 0.3


def test_replay_keeps_earlier_agent_motion(first, learn):
    state = first
    filled = []
    for i in range(20):
        state, _ = learn(state, rollout(i, shift=10.0 * i), jax.random.key(i))
        filled.append(int(state.filled))
    assert filled == [min(2 * (i + 1), CONFIG.replay) for i in range(20)]
    ages = np.unique(np.round(np.asarray(state.replay).mean(axis=1) / 10.0))
    assert ages.min() < 15 and ages.max() == 19  # old and new side by side


def _with_gaps(seed, **settings):
    """Return a rollout whose first two steps have incomplete histories, marked by zeros."""
    full = rollout(seed, **settings)
    features = full.next_obs["amp"].at[:2].set(0.0)
    return full._replace(next_obs={"amp": features})


def test_incomplete_histories_do_not_train_the_discriminator(first, learn):
    state, _ = learn(first, _with_gaps(0, shift=3.0), jax.random.key(1))
    assert np.all(np.any(np.asarray(state.replay[: int(state.filled)]) != 0.0, axis=1))
    assert np.all(np.asarray(state.stats.mean) > 1.8)  # zeros would pull it down
    nothing = _with_gaps(0)._replace(next_obs={"amp": jnp.zeros((STEPS, ROWS, SIZE))})
    after, _ = learn(state, nothing, jax.random.key(2))
    assert int(after.filled) == int(state.filled)
    np.testing.assert_array_equal(after.replay, state.replay)
    assert np.all(np.asarray(after.stats.mean) > 1.8)


def test_incomplete_histories_get_the_reward_of_logit_zero(first, learn, reward_of):
    state = first
    for i in range(5):
        state, _ = learn(state, rollout(i, shift=-2.0), jax.random.key(i))
    gaps = _with_gaps(3, shift=-2.0)._replace(reward=jnp.zeros((STEPS, ROWS)))
    reward = np.asarray(reward_of(state, gaps))
    np.testing.assert_allclose(reward[:2], 0.7 * CONFIG.scale * np.log(2.0), rtol=1e-5)
    assert np.all(reward[2:] < 0.9 * reward[0, 0])


def _logits(params, x):
    layers = params["params"]
    (hidden,) = layers["MLP_0"].values()
    x = jnp.maximum(x @ hidden["kernel"] + hidden["bias"][None], 0.0)
    return (x @ layers["head"]["kernel"] + layers["head"]["bias"][None])[:, 0]


@pytest.mark.parametrize("kind", ["bce", "least_squares"])
def test_gradient_step_matches_explicit_losses(kind):
    """All agent histories are equal, and so are all demonstrations: sampling is irrelevant."""
    settings = {"loss": kind, "updates": 1, "gradient_penalty": 3.0, "logit_reg": 0.5}
    config = replace(CONFIG, **settings, weight_decay=0.2)
    agent, demo = np.linspace(-1.0, 1.0, SIZE), np.linspace(2.0, -1.0, SIZE) ** 2 + 0.5
    amp = AMP(config, lambda key, number: jnp.float32(np.tile(demo, (number, 1))), SIZE)
    state = jax.jit(amp.init)(jax.random.key(0))
    state = state.replace(params=jax.tree.map(lambda x: x + 0.1, state.params))
    experience = rollout(0)
    experience = experience._replace(
        next_obs={"amp": jnp.float32(np.tile(agent, (STEPS, ROWS, 1)))}
    )
    after, metrics = jax.jit(amp.learn)(state, experience, jax.random.key(1))
    # The statistics cover as many agent rows as demonstration rows.
    rows = np.concatenate([np.tile(agent, (64, 1)), np.tile(demo, (64, 1))])
    np.testing.assert_allclose(after.stats.mean, rows.mean(axis=0), rtol=1e-5)
    a, d = ((x - rows.mean(axis=0)) / rows.std(axis=0) for x in (agent, demo))
    a, d = (jnp.float32(x)[None] for x in (a, d))

    def parts(params):
        real, unreal = _logits(params, d)[0], _logits(params, a)[0]
        if kind == "bce":
            loss = 0.5 * jnp.log1p(jnp.exp(-real)) + 0.5 * jnp.log1p(jnp.exp(unreal))
        else:
            loss = 0.25 * (real - 1) ** 2 + 0.25 * (unreal + 1) ** 2
        penalty = jnp.sum(jax.grad(lambda x: _logits(params, x)[0])(d) ** 2)
        return loss, penalty, real, unreal

    def total(params):
        loss, penalty, *_ = parts(params)
        return loss + 3.0 * penalty + 0.5 * jnp.sum(params["params"]["head"]["kernel"] ** 2)

    transform = optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(0.2)
    )
    grads = jax.jit(jax.grad(total))(state.params)

    @jax.jit
    def apply(params, grads):
        updates, inner = transform.update(grads, transform.init(params), params)
        return jax.tree.map(lambda p, u: p - config.learning_rate * u, params, updates), inner

    wanted, inner = apply(state.params, grads)
    # Adam's first step is little more than a sign: compare its first moment too.
    found, expected = (optax.tree.get(s, "mu") for s in (after.optimizer, inner))
    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5)
    jax.tree.map(close, (after.params, found), (wanted, expected))
    loss, penalty, real, unreal = jax.jit(parts)(state.params)
    np.testing.assert_allclose(metrics["amp/loss"].total, loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["amp/gradient_penalty"].total, penalty, rtol=1e-4)
    np.testing.assert_allclose(metrics["amp/demo_logit"].total, real, rtol=1e-4)
    np.testing.assert_allclose(metrics["amp/agent_logit"].total, unreal, rtol=1e-4)
    assert metrics["amp/demo_accuracy"].total == (real > 0)
    assert metrics["amp/agent_accuracy"].total == (unreal < 0)
    style_reward = 2.0 * discriminator.reward(kind, unreal)
    np.testing.assert_allclose(metrics["amp/agent_reward"].total, style_reward, rtol=1e-4)
    reward = jax.jit(amp.reward)(after, experience)
    style_reward = 2.0 * discriminator.reward(kind, _logits(after.params, a)[0])
    np.testing.assert_allclose(
        reward, 0.3 * experience.reward + 0.7 * style_reward, rtol=1e-3, atol=1e-4
    )


NEAR, FAR = 0.5, 3.0  # features of the agent's new motion, and of its replay


def test_half_of_the_agent_batch_comes_from_replay_once_filled():
    """Replay rows that are not filled yet hold NaN."""
    config = replace(CONFIG, updates=1, batch_size=4096)
    amp = AMP(config, lambda key, number: jnp.zeros((number, SIZE)), SIZE)
    first = jax.jit(amp.init)(jax.random.key(0))
    # With all weights 1, the logit is 1 + 16 units, each 1 + the sum of its inputs.
    params = jax.tree.map(jnp.ones_like, first.params)
    stats = first.stats.replace(count=jnp.float32(1e12))  # normalising changes nothing
    near = jnp.full((STEPS, ROWS, SIZE), NEAR)
    experience = rollout(0)._replace(next_obs={"amp": near})
    learn, found = jax.jit(amp.learn), []
    for filled in (0, 1, CONFIG.replay):
        replay = jnp.where(jnp.arange(CONFIG.replay)[:, None] < filled, FAR, jnp.nan)
        replay = jnp.broadcast_to(replay, (CONFIG.replay, SIZE))
        state = first.replace(params=params, stats=stats, replay=replay, filled=jnp.int32(filled))
        _, metrics = learn(state, experience, jax.random.key(2))
        found.append(float(metrics["amp/agent_logit"].total))
    new, old = 1 + 16 * (1 + SIZE * NEAR), 1 + 16 * (1 + SIZE * FAR)
    assert found[0] == pytest.approx(new, rel=1e-4)
    assert found[1:] == pytest.approx([(new + old) / 2] * 2, rel=0.05)
    # All replay rows are equally likely.
    replay = jnp.full((CONFIG.replay, SIZE), NEAR).at[0].set(FAR)
    state = state.replace(replay=replay)
    _, metrics = learn(state, experience, jax.random.key(2))
    expected = new + 0.5 * (old - new) / CONFIG.replay
    assert float(metrics["amp/agent_logit"].total) == pytest.approx(expected, rel=0.02)
    # All histories of the rollout are equally likely, including the first.
    lone = near.at[0, 0].set(FAR)
    state = first.replace(params=params, stats=stats)
    _, metrics = learn(state, experience._replace(next_obs={"amp": lone}), jax.random.key(2))
    expected = new + (old - new) / (STEPS * ROWS)
    assert float(metrics["amp/agent_logit"].total) == pytest.approx(expected, rel=0.05)


def test_initial_logits_are_small():
    kernel = np.abs(_first_head(16))
    assert kernel.shape == (16, 1)
    bound = np.sqrt(3 * 0.01 / 16)  # of a uniform draw with variance 0.01 / width
    assert 0.8 * bound < kernel.max() <= bound


def _first_head(width):
    amp = AMP(replace(CONFIG, hidden=(width,)), demonstrations, SIZE)
    return np.asarray(amp.init(jax.random.key(0)).params["params"]["head"]["kernel"])


def test_replay_stores_any_history_in_any_slot(first, learn, small):
    """Including the first ones. A small replay stores at least one row per rollout."""
    state, stored, slots = first, set(), set()
    for i in range(150):
        experience = rollout(i)
        full, (state, metrics) = (
            state.filled == CONFIG.replay,
            learn(state, experience, jax.random.key(i)),
        )
        new = np.asarray(experience.next_obs["amp"]).reshape(1, -1, SIZE)
        where = np.argwhere((np.asarray(state.replay)[:, None] == new).all(axis=-1))
        stored |= {int(row) for _, row in where}
        slots |= {int(slot) for slot, _ in where} if full else set()
    assert stored == set(range(STEPS * ROWS)) and slots == set(range(CONFIG.replay))
    assert float(metrics["amp/loss"].count) == CONFIG.updates
    state, once = small
    state, _ = once(state, rollout(0), jax.random.key(1))
    assert int(state.filled) == 1


def test_one_complete_history_is_enough(first, learn):
    """The only complete history of a rollout, in its last row, is sampled and stored."""
    one = jnp.arange(1.0, SIZE + 1)
    features = jnp.zeros((STEPS, ROWS, SIZE)).at[-1, -1].set(one)
    motion = _Motion.of(features.reshape(-1, SIZE))
    sampled = motion.sample(jax.random.key(0), jnp.zeros((30, SIZE)))
    np.testing.assert_array_equal(sampled, np.tile(one, (30, 1)))
    experience = rollout(0)._replace(next_obs={"amp": features})
    state, _ = learn(first, experience, jax.random.key(1))
    assert int(state.filled) == CONFIG.replay // 16
    np.testing.assert_array_equal(state.replay[: CONFIG.replay // 16], np.tile(one, (2, 1)))


def test_accuracies_are_fractions_and_logit_zero_is_wrong(small):
    (state, once), experience = small, rollout(0)
    zeroed = state.replace(params=jax.tree.map(jnp.zeros_like, state.params))
    for bias, demo, agent in ((0.0, 0.0, 0.0), (0.5, 1.0, 0.0), (-0.5, 0.0, 1.0)):
        params = jax.tree.map(lambda x: x, zeroed.params)
        params["params"]["head"]["bias"] += bias
        _, metrics = once(zeroed.replace(params=params), experience, jax.random.key(1))
        assert float(metrics["amp/demo_accuracy"].total) == demo
        assert float(metrics["amp/agent_accuracy"].total) == agent


def test_replay_fills_in_order_then_overwrites_at_random(first, learn):
    state = first
    number = CONFIG.replay // 16
    for i in range(16):
        state, _ = learn(state, rollout(i, shift=100.0 * (i + 1)), jax.random.key(i))
        ages = np.round(np.asarray(state.replay).mean(axis=1) / 100.0)
        expected = [k // number + 1 if k < number * (i + 1) else 0 for k in range(CONFIG.replay)]
        np.testing.assert_array_equal(ages, expected)
    before, slots = np.asarray(state.replay), set()
    for i in range(12):
        after, _ = learn(state, rollout(99, shift=1e4), jax.random.key(100 + i))
        changed = np.flatnonzero((np.asarray(after.replay) != before).any(axis=1))
        assert 1 <= len(changed) <= number and int(after.filled) == CONFIG.replay
        slots |= set(changed.tolist())
    assert len(slots) > 12 and max(slots) > CONFIG.replay // 2
