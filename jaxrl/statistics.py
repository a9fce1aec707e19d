"""Figures over few seeds that can be believed: robust means, intervals, comparisons.

A run without a number, as one whose learning broke, is worse than any other.

Reference: Agarwal et al., Deep RL at the edge of the statistical precipice, 2021.
"""

from typing import NamedTuple

import numpy as np

_FEWEST = 4  # of fewer, no quarter can be left out, and draws reach from the lowest to the highest


class Naming(NamedTuple):
    """What `middle` returns, in words."""

    mean: str
    interval: str
    short_mean: str
    short_interval: str


def naming(seeds: int) -> Naming:
    """Return what the middle of so many and its interval are: of few, no more than mean and range.

    Every word can be followed by an s.
    """
    if seeds < _FEWEST:
        return Naming("mean", "range", "mean", "range")
    return Naming("interquartile mean", "95 % bootstrap interval", "IQM", "95 %")


def interquartile_mean(
    values: np.ndarray, axis: int = -1, *, lower_is_better: bool = False
) -> np.ndarray:
    """Return the mean of the middle half along an axis, which a few odd ones cannot move.

    It is NaN where more are NaN than are left out at their end.
    """
    values = np.asarray(values, np.float64)
    lost = np.isnan(values)
    ordered = np.sort(np.where(lost, _worst(lower_is_better), values), axis=axis)
    number = ordered.shape[axis]
    cut = number // 4
    middle = np.take(ordered, np.arange(cut, number - cut), axis=axis)
    with np.errstate(invalid="ignore"):  # of infinities at both ends
        return np.where(lost.sum(axis=axis) > cut, np.nan, np.mean(middle, axis=axis))[()]


def _worst(lower_is_better: bool) -> float:
    return np.inf if lower_is_better else -np.inf


def interval(
    values: np.ndarray, samples: int = 5000, *, lower_is_better: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return 95 % bootstrap intervals of the interquartile mean over the first axis (seeds).

    All later axes (points of a curve) are drawn together: a seed is drawn with its whole curve.
    """
    values = np.asarray(values, np.float64)
    chosen = np.random.default_rng(0).integers(0, len(values), (samples, len(values)))
    means = interquartile_mean(values[chosen], axis=1, lower_is_better=lower_is_better)
    lost = np.isnan(means)
    with np.errstate(invalid="ignore"):
        filled = np.where(lost, _worst(lower_is_better), means)
        ends = np.percentile(filled, [2.5, 97.5], axis=0)
    low, high = np.where(lost.any(axis=0) & ~np.isfinite(ends), np.nan, ends)
    return low, high


def middle(
    values: np.ndarray, samples: int = 5000, *, lower_is_better: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the interquartile mean over the first axis, and where its interval begins and ends."""
    mean = interquartile_mean(values, axis=0, lower_is_better=lower_is_better)
    return mean, *interval(values, samples, lower_is_better=lower_is_better)


def probability_of_improvement(
    new: np.ndarray, old: np.ndarray, *, lower_is_better: bool = False
) -> float:
    """Return how likely a run of `new` beats one of `old`; ties count half."""
    new, old = (_ranked(values, lower_is_better) for values in (new, old))
    new, old = new[:, None], old[None, :]
    return float(np.mean((new > old) + 0.5 * (new == old)))


def _ranked(values: np.ndarray, lower_is_better: bool) -> np.ndarray:
    """Return values of which the higher is the better one."""
    values = np.asarray(values, np.float64)
    return np.where(np.isnan(values), -np.inf, -values if lower_is_better else values)
