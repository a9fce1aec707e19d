"""TD targets by hand, and the projections of C51 and HL-Gauss against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl.learning import td


def test_only_termination_cuts_the_bootstrap():
    reward, value = jnp.array([1.0, 1.0]), jnp.array([10.0, 10.0])
    found = td.target(reward, value, jnp.array([False, True]), gamma=0.9)
    np.testing.assert_allclose(found, [10.0, 1.0])


def test_n_step_returns_by_hand():
    reward = jnp.float32([[1, 2, 4], [1, 2, 4], [1, 2, 4], [1, 2, 4]])
    ended = jnp.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 1]], bool)
    total, steps = td.n_step(reward, ended, gamma=0.5)
    np.testing.assert_allclose(total, [3, 3, 2, 1])
    np.testing.assert_array_equal(steps, [3, 3, 2, 1])


def _project_by_loop(reward, probs, terminated, atoms, gamma):
    gap, result = atoms[1] - atoms[0], np.zeros_like(probs)
    for j, p in enumerate(probs):
        moved = reward + gamma * (0.0 if terminated else atoms[j])
        place = (np.clip(moved, atoms[0], atoms[-1]) - atoms[0]) / gap
        low = int(np.floor(place + 1e-6))
        high = min(low + 1, len(atoms) - 1)
        result[low] += p * (1 - (place - low))
        result[high] += p * (place - low)
    return result


def test_projection_matches_plain_loop():
    random = np.random.default_rng(0)
    atoms = np.asarray(td.support(-2.0, 3.0, 11))
    probs = random.dirichlet(np.ones(11), size=6).astype(np.float32)
    reward = random.normal(size=6).astype(np.float32) * 2
    ended = np.array([0, 1, 0, 0, 1, 0], bool)
    found = td.projected(reward, probs, ended, jnp.asarray(atoms), gamma=0.9)
    for i in range(6):
        expected = _project_by_loop(reward[i], probs[i], ended[i], atoms, 0.9)
        np.testing.assert_allclose(found[i], expected, atol=1e-5)
    np.testing.assert_allclose(np.sum(found, axis=-1), 1.0, atol=1e-5)


def test_projection_mean_is_the_td_target_within_support():
    atoms = td.support(-10.0, 10.0, 51)
    logits = jax.random.normal(jax.random.key(0), (4, 51)) - jnp.abs(atoms)[None]
    reward, ended = jnp.array([0.5, -1.0, 0.0, 2.0]), jnp.array([False, False, True, False])
    moved = td.projected(reward, jax.nn.softmax(logits), ended, atoms, gamma=0.5)
    mean = jnp.sum(moved * atoms[None], axis=-1)
    expected = td.target(reward, td.expected(logits, atoms), ended, gamma=0.5)
    np.testing.assert_allclose(mean, expected, atol=1e-4)


def _histogram_by_loop(value, atoms, sigma):
    """Return the mass of a normal distribution in the bin around each atom, of all bins 1."""
    gap = atoms[1] - atoms[0]
    value = min(max(value, atoms[0]), atoms[-1])
    normal = scipy.stats.norm(value, sigma * gap)
    mass = [normal.cdf(atom + gap / 2) - normal.cdf(atom - gap / 2) for atom in atoms]
    return np.array(mass) / sum(mass)


@pytest.mark.parametrize("sigma", [0.75, 2.0])
def test_hl_gauss_matches_scipy(sigma):
    atoms = td.support(-2.0, 3.0, 11)
    values = np.float32([[-9.0, -2.0, -1.76], [0.1, 3.0, 7.0]])  # also outside of the support
    found = td.hl_gauss(jnp.asarray(values), atoms, sigma=sigma)
    assert found.shape == (2, 3, 11)
    for place in np.ndindex(2, 3):
        expected = _histogram_by_loop(values[place], np.asarray(atoms, np.float64), sigma)
        np.testing.assert_allclose(found[place], expected, atol=1e-5)


def test_hl_gauss_keeps_the_mean_within_the_support():
    atoms = td.support(-10.0, 10.0, 51)
    values = jnp.linspace(-8.0, 8.0, 33)
    mean = jnp.sum(td.hl_gauss(values, atoms) * atoms[None], axis=-1)
    np.testing.assert_allclose(mean, values, atol=1e-3)


def test_cross_entropy_is_minimal_for_equal_distributions():
    probs = jnp.array([0.2, 0.5, 0.3])
    best = td.cross_entropy(jnp.log(probs), probs)
    assert float(best) == pytest.approx(-float(jnp.sum(probs * jnp.log(probs))))
    assert td.cross_entropy(jnp.zeros(3), probs) > best


def test_cross_entropy_and_mean_of_batched_distributions():
    logits = np.random.default_rng(3).normal(size=(2, 3, 4))
    probs = np.random.default_rng(4).dirichlet(np.ones(4), size=(2, 3))
    q = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    found = td.cross_entropy(jnp.float32(logits), jnp.float32(probs))
    np.testing.assert_allclose(found, -(probs * np.log(q)).sum(axis=-1), rtol=1e-5)
    atoms = np.array([-1.0, 0.0, 1.0, 2.0])
    np.testing.assert_allclose(td.support(-1.0, 2.0, 4), atoms, atol=1e-6)
    found = td.expected(jnp.float32(logits), jnp.float32(atoms))
    np.testing.assert_allclose(found, q @ atoms, rtol=1e-4, atol=1e-6)


def test_polyak_rate_weights_the_target_network():
    assert float(td.polyak(jnp.float32(10.0), jnp.float32(20.0), 0.75)) == 12.5
