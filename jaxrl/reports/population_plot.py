"""The learning curve of a population: every seed, their middle, and how sure it is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxrl.config import TrainConfig, variants
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers.sinks import read_jsonl
from jaxrl.reports import bands
from jaxrl.reports.plots import pyplot, save
from jaxrl.utils import stats

_COLORS = ("#1f4e79", "#d9822b", "#3d8b5f", "#a8326e", "#7a6ff0", "#8a6d3b", "#5c6b7a", "#c94f4f")


def curves(folder: Path, members: Sequence[TrainConfig], title: str) -> Path | None:
    """Draw plots/learning_curve.png from the members' logs; None when there is nothing to draw."""
    steps, returns = _evaluations(folders.of_members(folder, members))
    if not len(steps):
        return None
    from matplotlib.ticker import EngFormatter

    figure, axes = pyplot().subplots(figsize=(7, 4), dpi=120)
    for i, (label, places) in enumerate(variants.by_label(members).items()):
        color = _COLORS[i % len(_COLORS)]
        words = stats.labels(len(places))
        name = label or f"{words.mean} of {len(places)} seeds, {words.interval}"
        bands.draw(axes, steps, returns[places], color, width=2.2, label=name, seeds=True)
    axes.set(xlabel="environment steps of each seed", ylabel="evaluated return", title=title)
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(frameon=False, fontsize=8)
    return save(figure, folder / "plots" / "learning_curve.png")


def _evaluations(places: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which all members were evaluated, and their returns [members, points]."""
    name = "eval/mean_reward"
    logs = [
        {row["step"]: row[name] for row in read_jsonl(place / "metrics.jsonl") if name in row}
        for place in places
    ]
    steps = sorted(set(logs[0]).intersection(*logs[1:]))
    return np.array(steps), np.array([[log[step] for step in steps] for log in logs])
