"""Return decomposition: by enumeration of all subsets, the estimator is what it claims to be."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.learning import rrd


def _mean_over_subsets(guess, returned, size, **options):
    """Return the mean loss over every subset (or, with replacement, every tuple) of steps."""
    steps = range(len(guess))
    few = size <= len(guess)
    subsets = itertools.combinations(steps, size) if few else itertools.product(steps, repeat=size)
    drawn = jnp.asarray([[guess[i] for i in subset] for subset in subsets], jnp.float32)
    length = jnp.full(len(drawn), len(guess))
    return float(rrd.loss(drawn, length, jnp.full(len(drawn), returned), **options)[0])


@pytest.mark.parametrize("steps, size", [(5, 2), (6, 3), (4, 4), (7, 6), (2, 3), (3, 4), (1, 2)])
@pytest.mark.parametrize("whole_return", [False, True])
def test_unbiased_loss_is_that_of_the_full_decomposition(steps, size, whole_return):
    guess = np.random.default_rng(steps).normal(size=steps)
    returned = 1.7
    mean = _mean_over_subsets(guess, returned, size, whole_return=whole_return, unbiased=True)
    if whole_return:
        expected = (guess.sum() - returned) ** 2
    else:
        expected = (guess.mean() - returned / steps) ** 2
    assert mean == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("whole_return", [False, True])
def test_plain_loss_adds_the_variance_of_the_subset_mean(whole_return):
    guess, size, returned = np.array([0.3, -1.0, 2.0, 0.5, 0.1]), 2, 1.7
    mean = _mean_over_subsets(guess, returned, size, whole_return=whole_return, unbiased=False)
    means = [np.mean(pair) for pair in itertools.combinations(guess, size)]
    factor = len(guess) ** 2 if whole_return else 1
    expected = factor * ((guess.mean() - returned / 5) ** 2 + np.var(means))
    assert mean == pytest.approx(expected, rel=1e-4)


def test_forms_differ_by_the_square_of_the_length():
    guess = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3)), jnp.float32)
    arguments = guess, jnp.array([8]), jnp.array([2.0])
    for unbiased in (False, True):
        short, whole = (
            float(rrd.loss(*arguments, whole_return=form, unbiased=unbiased)[0])
            for form in (False, True)
        )
        assert whole == pytest.approx(64 * short, rel=1e-4)


def test_ircr_ranks_episodes():
    reward = rrd.ircr_reward(jnp.array([1.0, 3.0, 5.0]), jnp.array(1.0), jnp.array(5.0))
    np.testing.assert_allclose(reward, [0.0, 0.5, 1.0])
    assert np.isfinite(rrd.ircr_reward(jnp.array(2.0), jnp.array(2.0), jnp.array(2.0)))


def test_variance_of_a_subsets_mean_by_hand():
    guess = jnp.array([[1.0, 2.0, 3.0]] * 4)  # sample variance 1
    # With replacement from 2 steps, without from 3 and 6; one step has no spread, whatever is said.
    found = rrd.subset_variance(guess, jnp.array([2, 3, 6, 1]))
    np.testing.assert_allclose(found, [1 / 3, 0.0, 0.5 / 3, 0.0], rtol=1e-6)
    single = rrd.subset_variance(guess[:, :1], jnp.arange(4))
    assert single.shape == (4,) and not single.any()


def test_loss_of_several_episodes_by_hand():
    guess, length, returned = jnp.array([[1.0, 3.0], [0.0, 2.0]]), jnp.array([4, 1]), jnp.ones(2)
    # Means 2 and 1, returns per step ¼ and 1; sample variance 2 both, of which ½ · 2 / 2 and 0.
    for whole, weight in ((False, 1.0), (True, 16.0)):
        loss, miss, spread = rrd.loss(guess, length, returned, whole_return=whole, unbiased=True)
        np.testing.assert_allclose(miss, weight * 1.75**2 / 2, rtol=1e-6)
        np.testing.assert_allclose(spread, weight * 0.5 / 2, rtol=1e-6)
        np.testing.assert_allclose(loss, miss - spread, rtol=1e-6)


def test_ircr_of_equal_returns_is_not_divided_by_zero():
    reward = rrd.ircr_reward(jnp.array([2.0, 2.0 + 1e-6]), jnp.array(2.0), jnp.array(2.0))
    assert float(reward[0]) == 0.0 and float(reward[1]) == pytest.approx(95.4, rel=0.01)
