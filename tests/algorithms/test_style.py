"""Style rewards: given to the steps that earned them, by a discriminator that learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.style import Styling
from jaxrl.config import StyleConfig
from jaxrl.types import Rollout

SIZE, STEPS, ROWS = 6, 4, 5
CONFIG = StyleConfig(
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
def styling():
    return Styling(CONFIG, demonstrations, SIZE)


@pytest.fixture(scope="module")
def learn(styling):
    return jax.jit(styling.learn)


def rollout(seed, shift=0.0):
    random = np.random.default_rng(seed)
    seen = jnp.asarray(shift + random.normal(size=(STEPS, ROWS, SIZE)), jnp.float32)
    reward = jnp.asarray(random.normal(size=(STEPS, ROWS)), jnp.float32)
    unused = [()] * 5
    return Rollout({"style": seen}, (), reward, *unused[:2], {"style": seen}, (), (), {})


def test_each_step_is_paid_for_its_own_history(styling, learn):
    state, _ = learn(styling.init(jax.random.key(0)), rollout(0), jax.random.key(1))
    whole = rollout(3)
    together = styling.reward(state, whole)
    assert together.shape == (STEPS, ROWS)
    assert len(np.unique(np.asarray(together))) == STEPS * ROWS
    for t in range(STEPS):
        for row in range(ROWS):
            one = jax.tree.map(lambda x, t=t, row=row: x[t : t + 1, row : row + 1], whole)
            paid = styling.reward(state, one)
            np.testing.assert_allclose(together[t, row], paid[0, 0], rtol=1e-5)


def test_task_and_style_are_mixed_by_their_weights(styling):
    state, experience = styling.init(jax.random.key(0)), rollout(0)
    nothing = styling.reward(state, experience._replace(reward=jnp.zeros((STEPS, ROWS))))
    mixed = styling.reward(state, experience)
    np.testing.assert_allclose(mixed - nothing, 0.3 * experience.reward, rtol=1e-4, atol=1e-5)


def test_it_learns_to_tell_and_pays_for_what_looks_real(styling, learn):
    state = styling.init(jax.random.key(0))
    for i in range(20):
        state, metrics = learn(state, rollout(i, shift=-2.0), jax.random.key(i))
    accuracy = {k: float(m.total / m.count) for k, m in metrics.items()}
    assert accuracy["style/demo_accuracy"] > 0.95
    assert accuracy["style/agent_accuracy"] > 0.95
    real = styling.reward(state, rollout(99, shift=2.0)).mean()
    unreal = styling.reward(state, rollout(99, shift=-2.0)).mean()
    assert real > unreal + 0.3


def test_it_remembers_the_agents_earlier_motion(styling, learn):
    state = styling.init(jax.random.key(0))
    filled = []
    for i in range(20):
        state, _ = learn(state, rollout(i, shift=10.0 * i), jax.random.key(i))
        filled.append(int(state.filled))
    assert filled == [min(2 * (i + 1), CONFIG.replay) for i in range(20)]
    ages = np.unique(np.round(np.asarray(state.replay).mean(axis=1) / 10.0))
    assert ages.min() < 15 and ages.max() == 19  # old and new side by side


def _with_gaps(seed, **settings):
    """Return a rollout in which every row begins with two steps without a whole history."""
    full = rollout(seed, **settings)
    shown = full.next_obs["style"].at[:2].set(0.0)
    return full._replace(next_obs={"style": shown})


def test_steps_without_a_whole_history_teach_the_discriminator_nothing(styling, learn):
    state, _ = learn(styling.init(jax.random.key(0)), _with_gaps(0, shift=3.0), jax.random.key(1))
    assert np.all(np.any(np.asarray(state.replay[: int(state.filled)]) != 0.0, axis=1))
    assert np.all(np.asarray(state.moments.mean) > 1.8)  # zeros would pull it down
    nothing = _with_gaps(0)._replace(next_obs={"style": jnp.zeros((STEPS, ROWS, SIZE))})
    after, _ = learn(state, nothing, jax.random.key(2))
    assert int(after.filled) == int(state.filled)
    np.testing.assert_array_equal(after.replay, state.replay)
    assert np.all(np.asarray(after.moments.mean) > 1.8)


def test_steps_without_a_whole_history_are_paid_as_what_cannot_be_told(styling, learn):
    state = styling.init(jax.random.key(0))
    for i in range(5):
        state, _ = learn(state, rollout(i, shift=-2.0), jax.random.key(i))
    gaps = _with_gaps(3, shift=-2.0)._replace(reward=jnp.zeros((STEPS, ROWS)))
    paid = np.asarray(styling.reward(state, gaps))
    np.testing.assert_allclose(paid[:2], 0.7 * CONFIG.scale * np.log(2.0), rtol=1e-5)
    assert np.all(paid[2:] < 0.9 * paid[0, 0])
