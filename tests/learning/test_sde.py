"""State-dependent exploration against NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl.learning import distributions, sde

N, F, A, MIN_STD = 5, 4, 3, 0.05
RNG = np.random.default_rng(0)
FEATURES = np.float32(RNG.normal(size=(N, F)))
LOG_STD = np.float32(RNG.normal(-1.0, 0.7, size=(F, A)))
MEAN = np.float32(RNG.normal(size=(N, A)))


def _variance():
    """Sum over features, by hand."""
    variance = np.full((N, A), MIN_STD**2)
    for n in range(N):
        for a in range(A):
            for f in range(F):
                variance[n, a] += FEATURES[n, f] ** 2 * np.exp(LOG_STD[f, a]) ** 2
    return variance


@pytest.mark.parametrize("squashed", [False, True])
def test_log_prob_and_entropy_equal_scipy(squashed):
    std = np.sqrt(_variance())
    raw, noise = RNG.normal(size=(2, N, A))
    dist = (distributions.tanh_normal if squashed else distributions.normal)(A)
    params = jnp.concatenate([MEAN, sde.action_log_std(FEATURES, LOG_STD, MIN_STD)], axis=-1)
    log_prob = scipy.stats.norm(MEAN, std).logpdf(raw).sum(-1)
    entropy = scipy.stats.norm(MEAN, std).entropy().sum(-1)
    if squashed:
        log_prob -= np.log1p(-(np.tanh(raw) ** 2)).sum(-1)
        entropy += np.log1p(-(np.tanh(MEAN + std * noise) ** 2)).sum(-1)
    np.testing.assert_allclose(dist.log_prob(params, jnp.float32(raw)), log_prob, rtol=1e-4)
    np.testing.assert_allclose(dist.entropy(params, jnp.float32(noise)), entropy, rtol=1e-4)
    np.testing.assert_allclose(dist.std(params), std, rtol=1e-5)


def test_perturbation_is_a_product_of_each_row():
    matrix = np.float32(RNG.normal(size=(N, 1 + F, A)))
    given = map(jnp.asarray, (FEATURES, LOG_STD, MIN_STD, matrix))
    found = sde.perturbation(*given)
    scales = np.concatenate([np.full((1, A), MIN_STD), np.exp(LOG_STD)])
    expected = [np.append(1.0, FEATURES[n]) @ (scales * matrix[n]) for n in range(N)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_samples_have_the_variance_of_the_distribution():
    number = 20_000
    noise = sde.resample(sde.initial_noise(number, F, A), jax.random.key(0), None)
    features = jnp.broadcast_to(FEATURES[:1], (number, F))
    found = sde.perturbation(features, jnp.asarray(LOG_STD), 1.0, noise.matrix)
    expected = np.exp(sde.action_log_std(FEATURES[0], LOG_STD, 1.0))
    np.testing.assert_allclose(np.std(found, axis=0), expected, rtol=0.03)
    np.testing.assert_allclose(np.mean(found, axis=0), 0.0, atol=0.03)


def _matrices(freq, ends=()):
    """Return the matrices of seven steps; rows of `ends` end their episode after that step."""
    noise, matrices = sde.initial_noise(N, F, A), []
    for t in range(7):
        noise = sde.resample(noise, jax.random.key(t), freq)
        matrices.append(np.asarray(noise.matrix))
        ended = np.isin(np.arange(N), [row for row, step in ends if step == t])
        noise = sde.Noise(
            jnp.where(ended[:, None, None], 0.0, noise.matrix), jnp.where(ended, 0, noise.steps)
        )
    return np.stack(matrices)


def _changes(matrices):
    """Return the steps at which each row's matrix is another than before."""
    changed = (matrices[1:] != matrices[:-1]).all(axis=(2, 3))
    assert (changed == (matrices[1:] != matrices[:-1]).any(axis=(2, 3))).all()
    return [(np.flatnonzero(changed[:, row]) + 1).tolist() for row in range(N)]


def test_noise_is_held_between_samples_and_differs_across_rows():
    matrices = _matrices(3)
    assert _changes(matrices) == [[3, 6]] * N
    assert len(np.unique(matrices[0])) == N * (1 + F) * A
    assert _changes(_matrices(1)) == [[1, 2, 3, 4, 5, 6]] * N
    counted = sde.resample(sde.initial_noise(N, F, A), jax.random.key(0), 3)
    np.testing.assert_array_equal(counted.steps, [1] * N)


def test_noise_is_sampled_again_at_the_start_of_an_episode():
    ends = [(0, 1), (2, 3)]
    assert _changes(_matrices(None, ends)) == [[2], [], [4], [], []]
    assert _changes(_matrices(4, ends)) == [[2, 6], [4], [4], [4], [4]]


def test_gradient_reaches_the_scales_and_not_the_features():
    params = jnp.asarray(FEATURES), jnp.asarray(LOG_STD)
    total = jax.grad(lambda f, s: jnp.sum(sde.action_log_std(f, s, MIN_STD)), (0, 1))
    of_features, of_scales = total(*params)
    np.testing.assert_array_equal(of_features, np.zeros((N, F)))
    # d/dlogσ of ½ log(Σ f²σ² + c) is f²σ² / (Σ f²σ² + c).
    parts = np.square(FEATURES)[:, :, None] * np.exp(2 * LOG_STD)[None]
    np.testing.assert_allclose(of_scales, (parts / _variance()[:, None]).sum(0), rtol=1e-4)
