"""Prioritized sampling: probabilities, draws without replacement and importance weights."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import minibatch, prioritized_sampling

ADVANTAGE = jnp.array([[1.0, -2.0, 0.0, 3.0], [1.0, 2.0, 0.0, -5.0]])[:, None]  # [T, 1 shard, rows]


def test_priorities_by_hand():
    sizes = np.array([2.0, 4.0, 0.0, 8.0])
    for alpha in (1.0, 0.5):
        expected = sizes**alpha + 1e-6
        probs = prioritized_sampling.priorities(ADVANTAGE, alpha)
        np.testing.assert_allclose(probs[0], expected / expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(prioritized_sampling.priorities(ADVANTAGE, 0.0)[0], [0.25] * 4)
    np.testing.assert_allclose(
        prioritized_sampling.priorities(ADVANTAGE, 0.7).sum(), 1.0, rtol=1e-6
    )


def test_shards_have_their_own_priorities():
    two = jnp.concatenate([ADVANTAGE, 100 * ADVANTAGE], axis=1)
    probs = prioritized_sampling.priorities(two, 1.0)
    np.testing.assert_allclose(probs[0], probs[1], atol=1e-5)
    rows = prioritized_sampling.sample_rows(jax.random.split(jax.random.key(0), 2), probs, 3)
    assert rows.shape == (2, 3)


def test_rows_are_drawn_without_replacement_by_probability():
    probs = jnp.array([0.1, 0.2, 0.3, 0.4])
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(
        prioritized_sampling.sample_rows(keys, jnp.broadcast_to(probs, (20_000, 4)), 2)
    )
    assert (drawn[:, 0] != drawn[:, 1]).all()
    # Sequential draws: p_i p_j / (1 − p_i), in order.
    for i, j in itertools.permutations(range(4), 2):
        expected = probs[i] * probs[j] / (1 - probs[i])
        seen = np.mean((drawn[:, 0] == i) & (drawn[:, 1] == j))
        assert seen == pytest.approx(float(expected), abs=0.01)


def test_importance_weights_correct_for_probabilities():
    probs = jnp.array([[0.1, 0.2, 0.3, 0.4]])
    rows = jnp.array([[3, 0]])
    np.testing.assert_allclose(
        prioritized_sampling.importance(probs, rows, 1.0), [[1 / 1.6, 1 / 0.4]]
    )
    np.testing.assert_allclose(prioritized_sampling.importance(probs, rows, 0.0), [[1.0, 1.0]])
    np.testing.assert_allclose(
        prioritized_sampling.importance(probs, rows, 0.5), [[1.6**-0.5, 0.4**-0.5]], rtol=1e-6
    )


def test_beta_anneals_towards_one():
    assert float(prioritized_sampling.beta(0.2, 0.8, 0.0)) == pytest.approx(0.2)
    assert float(prioritized_sampling.beta(0.2, 0.8, 0.5)) == pytest.approx(0.2 + 0.8 * 0.8 * 0.5)
    assert float(prioritized_sampling.beta(0.2, 1.0, 1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("num_shards", [1, 2])
def test_scatter_rows_writes_back_to_gathered_rows(num_shards):
    x = jnp.arange(3 * 8 * 2.0).reshape(3, 8, 2)
    rows = jnp.array([[1, 3], [0, 2]])[:num_shards]
    gathered = minibatch.gather_rows(x, rows)
    back = minibatch.scatter_rows(x, rows, -gathered)
    places = np.asarray(rows + jnp.arange(num_shards)[:, None] * (8 // num_shards)).ravel()
    expected = np.asarray(x).copy()
    expected[:, places] *= -1
    np.testing.assert_array_equal(back, expected)
