"""Statistics over seeds, checked against SciPy and by hand."""

import numpy as np
import pytest
from scipy import stats

from jaxrl.utils import stats as statistics


def test_interquartile_mean():
    assert statistics.interquartile_mean(np.array([1.0, 2.0, 3.0, 4.0, 100.0])) == 3.0
    values = np.random.default_rng(0).normal(size=(7, 9))
    for axis in (0, 1):
        np.testing.assert_allclose(
            statistics.interquartile_mean(values, axis=axis), stats.trim_mean(values, 0.25, axis)
        )


def test_iqm_interval():
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    low, high = statistics.iqm_interval(np.array(values))
    other = stats.bootstrap(
        (values,), statistics.interquartile_mean, method="percentile", n_resamples=5000, rng=1
    ).confidence_interval
    assert (low, high) == pytest.approx((other.low, other.high), rel=0.15)
    assert low < 3.0 < high


def test_curve_intervals_resample_whole_seeds():
    curves = np.random.default_rng(1).normal(size=(6, 4))
    low, high = statistics.iqm_interval(np.concatenate([curves, curves], axis=1))
    np.testing.assert_array_equal(low[:4], low[4:])
    assert low.shape == high.shape == (8,)


def test_nan_counts_as_the_worst_value():
    values = np.array([1.0, 2.0, np.nan, 4.0, 5.0])
    for sign, lower in ((1.0, False), (-1.0, True)):
        last = sign * np.where(np.isnan(values), -1e9, values)
        mean, low, high = statistics.iqm_with_interval(sign * values, lower_is_better=lower)
        assert mean == statistics.interquartile_mean(last) == sign * 7 / 3
        worst, best = (high, low) if lower else (low, high)
        assert np.isnan(worst) and best == statistics.iqm_interval(last)[0 if lower else 1]
        assert np.isnan(statistics.interquartile_mean(np.append(sign * values, np.nan)))
    for one in (np.array([np.nan, 3.0]), np.array([np.nan, -3.0])):
        lower = bool(one[1] < 0)
        better = statistics.probability_of_improvement(one, one[:1], lower_is_better=lower)
        assert better == 0.75  # a tie of two diverged runs, and one win


def test_iqm_of_few_seeds_is_mean_and_range():
    """Labels say mean and range up to three seeds; from four on the values differ."""
    for number in range(1, 6):
        values = np.random.default_rng(number).normal(size=number)
        expected = (np.mean(values), np.min(values), np.max(values))
        same = np.allclose(statistics.iqm_with_interval(values), expected)
        assert same == (statistics.labels(number).interval == "range")


def test_nan_points_do_not_affect_other_points_of_a_curve():
    curves = np.ones((4, 3))
    curves[:, 1] = np.nan
    for each in statistics.iqm_with_interval(curves):
        np.testing.assert_array_equal(np.isnan(each), [False, True, False])


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [([2, 3], [0, 1], 1.0), ([0, 1], [2, 3], 0.0), ([1], [1], 0.5), ([0, 3], [1, 2, 3], 2.5 / 6)],
)
def test_probability_of_improvement(new, old, expected):
    assert statistics.probability_of_improvement(np.array(new), np.array(old)) == expected
    u = stats.mannwhitneyu(new, old).statistic / (len(new) * len(old))
    assert u == pytest.approx(expected)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_diverged_run_counts_in_every_aggregate(broken):
    """The IQM of three seeds trims none, so the diverged one decides."""
    values = np.array([100.0, 110.0, broken])
    mean, low, high = statistics.iqm_with_interval(values)
    assert np.isnan(mean) and np.isnan(low) and high == 110.0
    aggregates = map(float, (mean, low, high))
    texts = [statistics.format_aggregate(x, lambda finite: f"{finite:g}") for x in aggregates]
    assert texts == ["diverged", "diverged", "110"]
    np.testing.assert_array_equal(statistics.nonfinite_as_worst(values), [100.0, 110.0, -np.inf])
    assert statistics.nonfinite_as_worst(values, lower_is_better=True)[-1] == np.inf


def test_intervals_match_published_values():
    low, high = statistics.wilson_interval(10, 10)
    assert (low, high) == pytest.approx((0.7225, 1.0), abs=1e-4)  # Newcombe, 1998, method 3
    assert statistics.wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    low, high = statistics.mean_interval(values)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert statistics.mean_interval(np.ones(7)) == (1.0, 1.0)
