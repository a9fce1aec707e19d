"""Figures over few seeds that can be believed: robust means, intervals, comparisons.

A run without a number, as one that diverged, counts as the worst in every aggregate (`with_worst`);
it is never left out. Where such runs decide the result, the result is NaN, and is written as
"diverged" (`written`).

Reference: Agarwal et al., Deep RL at the edge of the statistical precipice, 2021.
"""

import math
from collections.abc import Callable
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


def with_worst(values: np.ndarray, *, lower_is_better: bool = False) -> np.ndarray:
    """Return values in which whatever is no finite number is the worst: ∞ of the bad sign."""
    values = np.asarray(values, np.float64)
    return np.where(np.isfinite(values), values, np.inf if lower_is_better else -np.inf)


def written(value: float, write: Callable[[float], str]) -> str:
    """Return an aggregate in words: as `write` does, or that runs without a number decide it."""
    return write(value) if math.isfinite(value) else "diverged"


def interquartile_mean(
    values: np.ndarray, axis: int = -1, *, lower_is_better: bool = False
) -> np.ndarray:
    """Return the mean of the middle half along an axis, which a few odd ones cannot move.

    It is NaN where more have no number than are left out at the worst end.
    """
    ordered = np.sort(with_worst(values, lower_is_better=lower_is_better), axis=axis)
    number = ordered.shape[axis]
    cut = number // 4
    middle = np.take(ordered, np.arange(cut, number - cut), axis=axis)
    return _or_nan(np.mean(middle, axis=axis))


def _or_nan(aggregate: np.ndarray) -> np.ndarray:
    """Return NaN where an aggregate is that of runs without a number."""
    return np.where(np.isfinite(aggregate), aggregate, np.nan)[()]


def interval(
    values: np.ndarray, samples: int = 5000, *, lower_is_better: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return 95 % bootstrap intervals of the interquartile mean over the first axis (seeds).

    All later axes (points of a curve) are drawn together: a seed is drawn with its whole curve.
    """
    values = np.asarray(values, np.float64)
    chosen = np.random.default_rng(0).integers(0, len(values), (samples, len(values)))
    means = interquartile_mean(values[chosen], axis=1, lower_is_better=lower_is_better)
    filled = with_worst(means, lower_is_better=lower_is_better)
    with np.errstate(invalid="ignore"):  # between two infinities
        low, high = _or_nan(np.percentile(filled, [2.5, 97.5], axis=0))
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
    sign = -1.0 if lower_is_better else 1.0
    new, old = (sign * with_worst(x, lower_is_better=lower_is_better) for x in (new, old))
    new, old = new[:, None], old[None, :]
    return float(np.mean((new > old) + 0.5 * (new == old)))
