"""Delayed match: what is shown, when the answer is due, and what it earns."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry

GAP = 3


def _play(env, answers):
    """Play an episode for each row of answers [episodes, steps]."""

    def step(state, action):
        state = env.step(state, action)
        return state, (state.obs, state.reward, state.done)

    @jax.jit
    def play(key, actions):
        start = env.reset(key)
        return start.obs, jax.lax.scan(step, start, actions)[1]

    keys = jax.random.split(jax.random.PRNGKey(0), len(answers))
    return jax.device_get(jax.vmap(play)(keys, answers))


def test_the_first_symbol_is_asked_for_after_the_gap():
    env = registry.make("delayed_match", gap=GAP)
    assert env.episode_length == GAP + 2
    answers = jnp.tile(jnp.arange(4).repeat(8)[:, None], (1, GAP + 2))
    first, (later, reward, done) = _play(env, answers)
    assert (first.sum(axis=1) == 1).all() and (first[:, 4] == 0).all()
    shown, question = later[:, :GAP], later[:, GAP]
    assert (shown[..., 4] == 0).all() and (shown.sum(axis=-1) == 1).all()
    np.testing.assert_array_equal(question, np.tile([0, 0, 0, 0, 1], (32, 1)))
    # Symbols in between are sampled again: some differ from the first, and from each other.
    symbols = shown.argmax(axis=-1)
    assert (symbols != first.argmax(axis=1)[:, None]).any()
    assert len(np.unique(symbols, axis=0)) > 16
    right = first.argmax(axis=1) == np.asarray(answers)[:, 0]
    assert right.any() and not right.all()
    np.testing.assert_array_equal(reward[:, -1], right)
    assert (reward[:, :-1] == 0).all()
    np.testing.assert_array_equal(done, np.tile([0] * (GAP + 1) + [1], (32, 1)))
