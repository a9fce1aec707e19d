"""The members of a population seen together: what sets them apart, and how sure their middle is.

Interquartile means with 95 % bootstrap intervals over the seeds of each variant; of fewer than four
seeds that is the mean and the range, and is called so.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from jaxrl import config_json, statistics
from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.runtime.evaluation import Episodes

Row = dict[str, float]
_REWARD = "eval/mean_reward"


def labels(members: Sequence[TrainConfig]) -> list[str]:
    """Return what sets each member apart besides its seed, as flags; "" where nothing does."""
    flat = [config_json.flatten(asdict(member)) for member in members]
    differing = [
        name
        for name in flat[0]
        if name not in ("seed", "run_dir", "preset") and len({repr(f[name]) for f in flat}) > 1
    ]
    return [",".join(f"{n.replace('_', '-')}={f[n]:g}" for n in differing) for f in flat]


def names(members: Sequence[TrainConfig]) -> list[str]:
    """Return the name of each member's folder."""
    found = [
        f"{label},seed-{member.seed}" if label else f"seed-{member.seed}"
        for label, member in zip(labels(members), members, strict=True)
    ]
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise UserError(f"Two members of a population are the same: {twice[0]}.")
    return found


def variants(members: Sequence[TrainConfig]) -> dict[str, list[int]]:
    """Return the places of the members that differ in their seeds only, by what they share."""
    found: dict[str, list[int]] = {}
    for place, label in enumerate(labels(members)):
        found.setdefault(label, []).append(place)
    return found


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
    for label, places in variants(members).items():
        prefix = f"{label}/eval" if label else "eval"
        names = (f"{prefix}/iqm_{name}" for name in ("reward", "low", "high"))
        found |= zip(names, map(float, statistics.middle(returns[places])), strict=True)
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
    """Return one line for each variant: its middle, the interval, and perhaps every seed."""
    found = []
    for label, places in variants(members).items():
        chosen = np.array([returns[place] for place in places])
        value, low, high = statistics.middle(chosen)
        words, start = statistics.naming(len(places)), f"{label}: " if label else ""
        seeds = "   seeds " + "  ".join(map(_text, chosen)) if each else ""
        ends = f"({words.short_interval} {_text(low)} to {_text(high)})"
        found.append(f"{start}{words.short_mean} {_text(value)} {ends}{seeds}")
    return found


def _text(value: Any) -> str:
    return statistics.written(float(value), lambda known: f"{known:.1f}")


def number(members: Sequence[TrainConfig]) -> str:
    """Say how many there are, and of what."""
    return f"{len(members)} {'members' if any(labels(members)) else 'seeds'}"
