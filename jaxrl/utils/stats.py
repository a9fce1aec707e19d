"""Robust statistics over few seeds: interquartile means, bootstrap intervals, comparisons.

A non-finite value, as of a run that diverged, counts as the worst in every aggregate; it is never
left out. Where such values decide the aggregate, it is NaN, and is written as "diverged".

Reference: Agarwal et al., Deep RL at the edge of the statistical precipice, 2021.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_MIN_SEEDS = 4  # of fewer, no quarter can be left out, and resamples span the whole range
_CHUNK = 2**24  # resampled values in memory at a time


class Labels(NamedTuple):
    """How to call what `iqm_with_interval` returns; an s makes a plural of every label."""

    mean: str
    interval: str
    short_mean: str
    short_interval: str


def labels(seeds: int) -> Labels:
    """Return the names of the aggregates of N seeds: of few, they are only mean and range."""
    if seeds < _MIN_SEEDS:
        return Labels("mean", "range", "mean", "range")
    return Labels("interquartile mean", "95 % bootstrap interval", "IQM", "95 %")


def nonfinite_as_worst(values: np.ndarray, *, lower_is_better: bool = False) -> np.ndarray:
    """Return values with every non-finite one replaced by the worst: ∞ of the bad sign."""
    values = np.asarray(values, np.float64)
    return np.where(np.isfinite(values), values, np.inf if lower_is_better else -np.inf)


def format_aggregate(value: float, write: Callable[[float], str]) -> str:
    """Return an aggregate as `write` formats it, or "diverged" if it is not finite."""
    return write(value) if math.isfinite(value) else "diverged"


def interquartile_mean(
    values: np.ndarray, axis: int = -1, *, lower_is_better: bool = False
) -> np.ndarray:
    """Return the mean of the inner half along an axis, which outliers cannot move.

    It is NaN where more values are non-finite than are left out at the worst end.
    """
    ordered = np.sort(nonfinite_as_worst(values, lower_is_better=lower_is_better), axis=axis)
    number = ordered.shape[axis]
    cut = number // 4
    inner = np.take(ordered, np.arange(cut, number - cut), axis=axis)
    return _nan_if_infinite(np.mean(inner, axis=axis))


def _nan_if_infinite(aggregate: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(aggregate), aggregate, np.nan)[()]


def bootstrap(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], resamples: int
) -> np.ndarray:
    """Return [resamples, ...]: a statistic of rows drawn with replacement. Efron, 1979.

    Args:
      values: [rows, ...]; all later axes are drawn together.
      statistic: maps [resamples, rows, ...] to [resamples, ...].
      resamples: number of draws.
    """
    rng, rows = np.random.default_rng(0), len(values)
    chunk = max(1, _CHUNK // max(1, values.size))
    parts = []
    for start in range(0, resamples, chunk):
        index = rng.integers(0, rows, (min(chunk, resamples - start), rows))
        parts.append(statistic(values[index]))
    return np.concatenate(parts)


def mean_interval(values: np.ndarray, resamples: int = 1000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of values [rows]."""
    means = bootstrap(values, lambda drawn: np.mean(drawn, axis=1), resamples)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def wilson_interval(successes: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval of a success rate. Wilson, 1927.

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n); a bootstrap of all successes would have no
    width at all.
    """
    p, n = successes / number, number
    center, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return float((center - half) / scale), float((center + half) / scale)


def iqm_interval(
    values: np.ndarray, resamples: int = 5000, *, lower_is_better: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return 95 % bootstrap intervals of the interquartile mean over the first axis (seeds).

    All later axes (points of a curve) are drawn together: a seed is drawn with its whole curve.
    """

    def statistic(drawn: np.ndarray) -> np.ndarray:
        return interquartile_mean(drawn, axis=1, lower_is_better=lower_is_better)

    means = bootstrap(np.asarray(values, np.float64), statistic, resamples)
    filled = nonfinite_as_worst(means, lower_is_better=lower_is_better)
    with np.errstate(invalid="ignore"):  # between two infinities
        low, high = _nan_if_infinite(np.percentile(filled, [2.5, 97.5], axis=0))
    return low, high


def iqm_with_interval(
    values: np.ndarray, resamples: int = 5000, *, lower_is_better: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the interquartile mean over the first axis, and both ends of its interval."""
    mean = interquartile_mean(values, axis=0, lower_is_better=lower_is_better)
    return mean, *iqm_interval(values, resamples, lower_is_better=lower_is_better)


def probability_of_improvement(
    new: np.ndarray, old: np.ndarray, *, lower_is_better: bool = False
) -> float:
    """Return the probability that a run of `new` beats one of `old`; ties count half."""
    sign = -1.0 if lower_is_better else 1.0
    new, old = (sign * nonfinite_as_worst(x, lower_is_better=lower_is_better) for x in (new, old))
    new, old = new[:, None], old[None, :]
    return float(np.mean((new > old) + 0.5 * (new == old)))
