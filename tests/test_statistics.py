"""Figures over seeds, against SciPy and by hand."""

import numpy as np
import pytest
from scipy import stats

from jaxrl import statistics


def test_interquartile_mean():
    assert statistics.interquartile_mean(np.array([1.0, 2.0, 3.0, 4.0, 100.0])) == 3.0
    values = np.random.default_rng(0).normal(size=(7, 9))
    for axis in (0, 1):
        np.testing.assert_allclose(
            statistics.interquartile_mean(values, axis=axis), stats.trim_mean(values, 0.25, axis)
        )


def test_interval():
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    low, high = statistics.interval(np.array(values))
    other = stats.bootstrap(
        (values,), statistics.interquartile_mean, method="percentile", n_resamples=5000, rng=1
    ).confidence_interval
    assert (low, high) == pytest.approx((other.low, other.high), rel=0.15)
    assert low < 3.0 < high


def test_intervals_of_curves_draw_whole_seeds():
    curves = np.random.default_rng(1).normal(size=(6, 4))
    low, high = statistics.interval(np.concatenate([curves, curves], axis=1))
    np.testing.assert_array_equal(low[:4], low[4:])
    assert low.shape == high.shape == (8,)


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [([2, 3], [0, 1], 1.0), ([0, 1], [2, 3], 0.0), ([1], [1], 0.5), ([0, 3], [1, 2, 3], 2.5 / 6)],
)
def test_probability_of_improvement(new, old, expected):
    assert statistics.probability_of_improvement(np.array(new), np.array(old)) == expected
    u = stats.mannwhitneyu(new, old).statistic / (len(new) * len(old))
    assert u == pytest.approx(expected)
