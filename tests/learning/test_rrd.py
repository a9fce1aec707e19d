"""RRD losses by enumeration of all subsets, and IRCR rewards."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import rrd


def _mean_over_subsets(predicted, episode_return, size, **options):
    """Return the mean loss over every subset (or, with replacement, every tuple) of steps."""
    steps = range(len(predicted))
    few = size <= len(predicted)
    subsets = itertools.combinations(steps, size) if few else itertools.product(steps, repeat=size)
    drawn = jnp.asarray([[predicted[i] for i in subset] for subset in subsets], jnp.float32)
    length = jnp.full(len(drawn), len(predicted))
    return float(rrd.loss(drawn, length, jnp.full(len(drawn), episode_return), **options)[0])


@pytest.mark.parametrize("steps, size", [(5, 2), (6, 3), (4, 4), (7, 6), (2, 3), (3, 4), (1, 2)])
@pytest.mark.parametrize("whole_return", [False, True])
def test_unbiased_loss_equals_full_decomposition(steps, size, whole_return):
    predicted = np.random.default_rng(steps).normal(size=steps)
    episode_return = 1.7
    mean = _mean_over_subsets(
        predicted, episode_return, size, whole_return=whole_return, unbiased=True
    )
    if whole_return:
        expected = (predicted.sum() - episode_return) ** 2
    else:
        expected = (predicted.mean() - episode_return / steps) ** 2
    assert mean == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("whole_return", [False, True])
def test_plain_loss_adds_the_variance_of_the_subset_mean(whole_return):
    predicted, size, episode_return = np.array([0.3, -1.0, 2.0, 0.5, 0.1]), 2, 1.7
    mean = _mean_over_subsets(
        predicted, episode_return, size, whole_return=whole_return, unbiased=False
    )
    means = [np.mean(pair) for pair in itertools.combinations(predicted, size)]
    factor = len(predicted) ** 2 if whole_return else 1
    expected = factor * ((predicted.mean() - episode_return / 5) ** 2 + np.var(means))
    assert mean == pytest.approx(expected, rel=1e-4)


def test_whole_return_scales_the_loss_by_squared_length():
    predicted = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3)), jnp.float32)
    arguments = predicted, jnp.array([8]), jnp.array([2.0])
    for unbiased in (False, True):
        short, whole = (
            float(rrd.loss(*arguments, whole_return=form, unbiased=unbiased)[0])
            for form in (False, True)
        )
        assert whole == pytest.approx(64 * short, rel=1e-4)


def test_ircr_scales_returns_to_the_unit_interval():
    reward = rrd.ircr_reward(jnp.array([1.0, 3.0, 5.0]), jnp.array(1.0), jnp.array(5.0))
    np.testing.assert_allclose(reward, [0.0, 0.5, 1.0])
    assert np.isfinite(rrd.ircr_reward(jnp.array(2.0), jnp.array(2.0), jnp.array(2.0)))


def test_subset_variance_by_hand():
    predicted = jnp.array([[1.0, 2.0, 3.0]] * 4)  # sample variance 1
    # With replacement from 2 steps, without from 3 and 6; a single step has no variance.
    found = rrd.subset_variance(predicted, jnp.array([2, 3, 6, 1]))
    np.testing.assert_allclose(found, [1 / 3, 0.0, 0.5 / 3, 0.0], rtol=1e-6)
    single = rrd.subset_variance(predicted[:, :1], jnp.arange(4))
    assert single.shape == (4,) and not single.any()


def test_loss_of_several_episodes_by_hand():
    predicted, length, episode_return = (
        jnp.array([[1.0, 3.0], [0.0, 2.0]]),
        jnp.array([4, 1]),
        jnp.ones(2),
    )
    # Means 2 and 1, returns per step ¼ and 1; sample variance 2 both, of which ½ · 2 / 2 and 0.
    for whole, weight in ((False, 1.0), (True, 16.0)):
        loss, error, variance = rrd.loss(
            predicted, length, episode_return, whole_return=whole, unbiased=True
        )
        np.testing.assert_allclose(error, weight * 1.75**2 / 2, rtol=1e-6)
        np.testing.assert_allclose(variance, weight * 0.5 / 2, rtol=1e-6)
        np.testing.assert_allclose(loss, error - variance, rtol=1e-6)


def test_ircr_of_equal_returns_does_not_divide_by_zero():
    reward = rrd.ircr_reward(jnp.array([2.0, 2.0 + 1e-6]), jnp.array(2.0), jnp.array(2.0))
    assert float(reward[0]) == 0.0 and float(reward[1]) == pytest.approx(95.4, rel=0.01)
