"""Discriminator losses and rewards against NumPy and finite differences."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import discriminator

DEMO, AGENT = np.array([2.0, -1.0, 0.5]), np.array([-3.0, 1.0])


def test_cross_entropy_by_hand():
    def log_sigmoid(x):
        return -np.log(1.0 + np.exp(-x))

    expected = 0.5 * -np.mean(log_sigmoid(DEMO)) + 0.5 * -np.mean(log_sigmoid(-AGENT))
    got = discriminator.classification_loss("bce", jnp.asarray(DEMO), jnp.asarray(AGENT))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_least_squares_by_hand():
    # Demonstrations should be at 1: (1, 4, 0.25) / 2; the agent's at -1: (4, 4) / 2.
    expected = 0.5 * (5.25 / 3 / 2) + 0.5 * (8 / 2 / 2)
    got = discriminator.classification_loss("least_squares", jnp.asarray(DEMO), jnp.asarray(AGENT))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_gradient_penalty_matches_finite_differences():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(5, 4))
    weights, second = random.normal(size=(4, 3)), random.normal(size=3)

    def logit(x, sin=np.sin):
        return sin(x @ weights) @ second

    slopes = np.zeros_like(inputs)
    for row in range(5):
        for column in range(4):
            step = np.zeros(4)
            step[column] = 1e-5
            slopes[row, column] = (logit(inputs[row] + step) - logit(inputs[row] - step)) / 2e-5
    expected = np.mean(np.sum(slopes**2, axis=1))
    got = discriminator.gradient_penalty(lambda x: logit(x, jnp.sin), jnp.asarray(inputs))
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "logit", "expected"),
    [
        ("bce", 0.0, np.log(2.0)),
        ("bce", 100.0, -np.log(1e-4)),  # bounded
        ("least_squares", 1.0, 1.0),
        ("least_squares", -1.0, 0.0),
        ("least_squares", -5.0, 0.0),  # never negative
        ("least_squares", 0.0, 0.75),
    ],
)
def test_rewards_by_hand(kind, logit, expected):
    np.testing.assert_allclose(
        discriminator.reward(kind, jnp.asarray(logit)), expected, rtol=1e-5, atol=1e-7
    )
