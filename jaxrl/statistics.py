"""Figures over few seeds that can be believed: robust means, intervals, comparisons.

Reference: Agarwal et al., Deep RL at the edge of the statistical precipice, 2021.
"""

import numpy as np


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the mean of the middle half along an axis, which a few odd ones cannot move."""
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    number = ordered.shape[axis]
    cut = number // 4
    middle = np.take(ordered, np.arange(cut, number - cut), axis=axis)
    return np.mean(middle, axis=axis)


def interval(values: np.ndarray, samples: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Return 95 % bootstrap intervals of the interquartile mean over the first axis (seeds).

    All later axes (points of a curve) are drawn together: a seed is drawn with its whole curve.
    """
    values = np.asarray(values, np.float64)
    chosen = np.random.default_rng(0).integers(0, len(values), (samples, len(values)))
    means = interquartile_mean(values[chosen], axis=1)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


def middle(values: np.ndarray, samples: int = 5000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the interquartile mean over the first axis, and where its interval begins and ends."""
    return interquartile_mean(values, axis=0), *interval(values, samples)


def probability_of_improvement(new: np.ndarray, old: np.ndarray) -> float:
    """Return how likely a run of `new` beats one of `old`; ties count half."""
    new, old = np.asarray(new)[:, None], np.asarray(old)[None, :]
    return float(np.mean((new > old) + 0.5 * (new == old)))
