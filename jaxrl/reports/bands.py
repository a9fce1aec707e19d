"""How curves of several seeds are drawn: their interquartile mean, and how sure it is."""

from typing import Any

import numpy as np

from jaxrl.utils import stats


def draw(
    axes: Any,
    steps: np.ndarray,
    values: np.ndarray,
    color: str,
    *,
    width: float,
    label: str | None = None,
    seeds: bool = False,
    lower_is_better: bool = False,
) -> None:
    """Draw curves [seeds, points] as one with its 95 % interval, over every single one if asked."""
    for one in values if seeds else ():
        axes.plot(steps, one, color=color, linewidth=0.7, alpha=0.35)
    middle, low, high = stats.iqm_with_interval(values, lower_is_better=lower_is_better)
    axes.fill_between(steps, low, high, color=color, alpha=0.22, linewidth=0)
    axes.plot(steps, middle, color=color, linewidth=width, label=label)
