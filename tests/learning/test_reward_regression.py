"""Linear reward regression recovers step rewards from episode returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import reward_regression

N = 6
update = jax.jit(reward_regression.update)


def _episodes(random, number, weights, constant, longest=40, offset_scale=5.0):
    """Draw episodes that differ mostly along one direction; padding steps are NaN."""
    length = random.integers(5, longest + 1, number)
    offset = offset_scale * random.normal(size=(number, 1, 1)) * np.ones(N)
    features = offset + random.normal(size=(number, longest, N))
    inside = np.arange(longest)[None] < length[:, None]
    episode_return = np.where(inside, features @ weights + constant, 0.0).sum(axis=1)
    features[~inside] = np.nan
    return jnp.asarray(features, jnp.float32), jnp.asarray(length), jnp.asarray(episode_return)


def test_recovers_weights_and_constant():
    random = np.random.default_rng(0)
    weights, constant = random.normal(size=N), 0.7
    fit = reward_regression.init(N)
    np.testing.assert_array_equal(reward_regression.predict(fit, jnp.ones((3, N))), 0.0)
    for _ in range(20):
        fit = update(fit, *_episodes(random, 8, weights, constant))
    np.testing.assert_allclose(fit.weights, weights, atol=0.02)
    assert float(fit.constant) == pytest.approx(constant, abs=0.02)
    steps = random.normal(size=(4, 3, N)).astype(np.float32)
    np.testing.assert_allclose(
        reward_regression.predict(fit, steps), steps @ weights + constant, atol=0.1
    )


def test_solution_equals_ridge_regression():
    """Updates in parts, with episodes of unequal length, against one solve in NumPy."""
    random = np.random.default_rng(1)
    parts = [
        _episodes(random, 8, random.normal(size=N), 0.3) for _ in range(3)
    ]  # each part has other weights
    fit = reward_regression.init(N)
    for part in parts:
        fit = update(fit, *part)
    means, squares, rewards = [], [], []
    for features, length, episode_return in parts:
        for steps, n, total in zip(np.float64(features), length, episode_return, strict=True):
            means.append(steps[:n].mean(axis=0))
            squares.append((steps[:n] ** 2).mean(axis=0))
            rewards.append(float(total) / int(n))
    m, r = np.array(means), np.array(rewards)
    spread = np.diag(np.mean(squares, axis=0) - m.mean(axis=0) ** 2)
    covariance = np.cov(m.T, bias=True) + reward_regression._RIDGE * spread
    wanted = np.linalg.solve(covariance, ((m - m.mean(axis=0)).T @ r) / len(r))
    np.testing.assert_allclose(fit.weights, wanted, rtol=5e-3, atol=5e-3)


def _unequal_episodes(seed, longest=7):
    """Features [5, longest, N] of which only lengths from 1 to `longest` count, and returns."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(5, longest, N)) + 3.0 * random.normal(size=(5, 1, N)) + 2.0
    length = np.array([1, 2, 4, 6, longest])
    features[np.arange(longest)[None] >= length[:, None]] = np.nan
    return jnp.float32(features), jnp.asarray(length), jnp.float32(random.normal(size=5) * length)


def test_incremental_averages_equal_batch_averages():
    parts, fit = [_unequal_episodes(seed) for seed in range(3)], reward_regression.init(N)
    for part in parts:
        fit = update(fit, *part)
    steps = [np.float64(f[:n]) for part in parts for f, n in zip(*part[:2], strict=True)]
    m = np.array([x.mean(axis=0) for x in steps])
    r = np.concatenate([np.float64(part[2] / part[1]) for part in parts])
    centered = m - m.mean(axis=0)
    assert float(fit.count) == 3
    close = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(fit.mean, m.mean(axis=0), **close)
    np.testing.assert_allclose(fit.target, r.mean(), **close)
    np.testing.assert_allclose(fit.covariance, centered.T @ centered / len(m), **close)
    np.testing.assert_allclose(fit.cross, centered.T @ (r - r.mean()) / len(m), **close)
    variance = np.mean([((x - m.mean(axis=0)) ** 2).mean(axis=0) for x in steps], axis=0)
    np.testing.assert_allclose(fit.variance, variance, **close)


def test_ridge_is_scaled_by_the_variance_of_steps(monkeypatch):
    monkeypatch.setattr(reward_regression, "_RIDGE", 0.5)
    fit = jax.jit(lambda *x: reward_regression.update(*x))(
        reward_regression.init(N), *_unequal_episodes(3)
    )
    variance, covariance, cross = (np.float64(x) for x in (fit.variance, fit.covariance, fit.cross))
    wanted = np.linalg.solve(covariance + 0.5 * np.diag(variance), cross)
    np.testing.assert_allclose(fit.weights, wanted, rtol=1e-3, atol=1e-5)
    constant = float(fit.target) - wanted @ np.float64(fit.mean)
    assert float(fit.constant) == pytest.approx(constant, rel=1e-3)
    features = np.ones((2, N), np.float32)
    np.testing.assert_allclose(
        reward_regression.predict(fit, features), features @ wanted + constant, rtol=1e-3, atol=1e-4
    )


def test_old_episodes_decay_and_non_finite_ones_are_ignored(monkeypatch):
    monkeypatch.setattr(reward_regression, "_MEMORY", 5)
    random, fit = np.random.default_rng(2), reward_regression.init(N)
    update_short_memory = jax.jit(lambda fit, *episodes: reward_regression.update(fit, *episodes))
    for weights in (np.ones(N), -np.ones(N)):
        for _ in range(40):
            fit = update_short_memory(fit, *_episodes(random, 8, weights, 0.0))
    np.testing.assert_allclose(fit.weights, -1.0, atol=0.02)
    features, length, episode_return = _episodes(random, 8, np.ones(N), 0.0)
    same = update_short_memory(fit, features.at[0, 0, 0].set(jnp.nan), length, episode_return)
    jax.tree.map(np.testing.assert_array_equal, same, fit)


@pytest.mark.parametrize("offset", [0.01, 1.0, 30.0, 100.0])
def test_weights_are_recovered_despite_offsets_and_constants(offset):
    """Observations may be unnormalized, and some are constant."""
    random, fit = np.random.default_rng(3), reward_regression.init(N)
    weights = np.array([1.0, -2.0, 0.5, 0.0, 1.0, -1.0])
    for _ in range(30):
        features, length, _ = _episodes(random, 8, weights, 0.0, offset_scale=1.0)
        features = (features + offset).at[..., 3].set(offset)
        episode_return = np.nansum(np.float64(features) @ weights, axis=1)
        fit = update(fit, features, length, jnp.asarray(episode_return))
    assert fit.count == 30  # updates that cannot be solved are not counted
    np.testing.assert_allclose(np.delete(fit.weights, 3), np.delete(weights, 3), atol=0.02)
    inside = features[:, :5]  # no episode is shorter
    np.testing.assert_allclose(reward_regression.predict(fit, inside), inside @ weights, atol=0.1)


def test_products_use_the_highest_precision():
    """TF32 has ten bits, too few for the solve."""
    episodes = _episodes(np.random.default_rng(4), 8, np.ones(N), 0.0)
    program = str(jax.make_jaxpr(reward_regression.update)(reward_regression.init(N), *episodes))
    program += str(
        jax.make_jaxpr(reward_regression.predict)(reward_regression.init(N), episodes[0])
    )
    assert program.count("dot_general[") == program.count("precision=(Precision.HIGHEST") > 0
