"""The members of a population seen together: how they differ, and their interquartile means.

With 95 % bootstrap intervals over the seeds of each variant; of fewer than four
seeds that is the mean and the range, and is called so.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.config import TrainConfig, variants
from jaxrl.evaluation.episodes import Episodes
from jaxrl.utils import formatting, stats

Row = dict[str, float]
_REWARD = "eval/mean_reward"


def joined(rows: Sequence[Row]) -> Row:
    """Return the mean of everything over the members that have it; speeds add up."""
    known = dict.fromkeys(name for row in rows for name in row)
    means = {name: float(np.mean([row[name] for row in rows if name in row])) for name in known}
    speeds = {name: value * len(rows) for name, value in means.items() if name.endswith("fps")}
    return means | speeds


def figures(members: Sequence[TrainConfig], rows: Sequence[Row]) -> Row:
    """Return what evaluations of all members say together, as an ordinary run names it."""
    returns = np.array([row[_REWARD] for row in rows])
    found = {name: value for name, value in joined(rows).items() if name.startswith("eval/")}
    found |= {
        "eval/std_reward": float(np.std(returns)),
        "eval/min_reward": float(np.min(returns)),
        "eval/max_reward": float(np.max(returns)),
    }
    for label, places in variants.by_label(members).items():
        prefix = f"{label}/eval" if label else "eval"
        names = (f"{prefix}/iqm_{name}" for name in ("reward", "low", "high"))
        found |= zip(names, map(float, stats.iqm_with_interval(returns[places])), strict=True)
    return found


def as_episodes(rows: Sequence[Row]) -> Episodes:
    """Return evaluations of all members as if each had been one episode."""

    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows])

    rate = "eval/success_rate"
    successes = column(rate) if all(rate in row for row in rows) else None
    return Episodes(column(_REWARD), column("eval/mean_ep_length"), successes)  # type: ignore[arg-type]


def lines(
    members: Sequence[TrainConfig], returns: Sequence[float], *, each: bool = True
) -> list[str]:
    """Return a line for each variant: interquartile mean, interval, and perhaps every seed."""
    found = []
    for label, places in variants.by_label(members).items():
        chosen = np.array([returns[place] for place in places])
        value, low, high = stats.iqm_with_interval(chosen)
        words, start = stats.labels(len(places)), f"{label}: " if label else ""
        seeds = "   seeds " + "  ".join(map(_text, chosen)) if each else ""
        ends = f"({words.short_interval} {_text(low)} to {_text(high)})"
        found.append(f"{start}{words.short_mean} {_text(value)} {ends}{seeds}")
    return found


def _text(value: Any) -> str:
    return stats.format_aggregate(float(value), formatting.short)
