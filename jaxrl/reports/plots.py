"""Plots of a run as PNG: learning curves of one or several seeds, phases, start positions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from jaxrl.config import TrainConfig, variants
from jaxrl.envs import hooks
from jaxrl.loggers import run_dir
from jaxrl.loggers.sinks import read_jsonl
from jaxrl.reports import charts
from jaxrl.utils import atomic_io, stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = ("#1f4e79", "#d9822b", "#3d8b5f", "#a8326e", "#7a6ff0", "#8a6d3b", "#5c6b7a", "#c94f4f")

_TERM_COLORS = ("#8a6d3b", "#d9822b", "#7a6ff0", "#3d8b5f", "#1f4e79")


def pyplot() -> Any:
    """Import matplotlib.pyplot when it is needed, without a display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure in the style of all plots, and close it."""
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."))
    pyplot().close(figure)
    return path


def learning_curve(folder: Path, title: str) -> Path | None:
    """Write plots/learning_curve.png from metrics.jsonl; return None if there are no points."""
    plt = pyplot()
    rows = read_jsonl(folder / "metrics.jsonl")
    styles = _styles(rows)
    figure, axes = plt.subplots(figsize=(7, 4), dpi=120)
    drawn = False
    for name, (label, color, width) in styles.items():
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points:
            drawn = True
            alone = {"marker": "o"} if len(points) == 1 else {}  # a line needs two
            look = {"label": label, "color": color, "linewidth": width, **alone}
            axes.plot(*zip(*points, strict=True), **look)
    band = [r for r in rows if "eval/std_reward" in r]
    if band:
        steps = [r["step"] for r in band]
        low = [r["eval/mean_reward"] - r["eval/std_reward"] for r in band]
        high = [r["eval/mean_reward"] + r["eval/std_reward"] for r in band]
        axes.fill_between(steps, low, high, color="#1f4e79", alpha=0.15, linewidth=0)
    if not drawn:
        plt.close(figure)
        return None
    axes.set(xlabel="environment steps", ylabel="episode return", title=title)
    if "train/R_loss" in styles:
        axes.set(xlabel="gradient steps", ylabel="R_loss", yscale="log")
    return _save_curve(axes, folder)


def _save_curve(axes: "Axes", folder: Path) -> Path:
    """Write plots/learning_curve.png."""
    from matplotlib.ticker import EngFormatter

    if axes.get_yscale() == "linear":
        axes.set_ylim(*charts.widened(*axes.get_ylim()))
    axes.xaxis.set_major_formatter(EngFormatter())
    legend_above(axes)
    return save(cast("Figure", axes.figure), folder / "plots" / "learning_curve.png")


def legend_above(axes: "Axes") -> None:
    """Put the legend between title and plot, where it covers no points."""
    labels = axes.get_legend_handles_labels()[1]
    columns = min(len(labels), 2)
    axes.legend(
        frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, fontsize=9
    )
    axes.set_title(axes.get_title(), pad=12 + 15 * -(-len(labels) // columns))


def _styles(rows: list[dict[str, float]]) -> dict[str, tuple[str, str, float]]:
    """Return (label, color, width) of the metrics to draw: returns, or a loss without episodes."""
    played = any("rollout/ep_rew_mean" in row or "eval/mean_reward" in row for row in rows)
    if not played and any("train/R_loss" in row for row in rows):
        return {"train/R_loss": ("loss of the learnt reward", "#1f4e79", 2.2)}
    return {
        "rollout/ep_rew_mean": ("training episodes", "#9bb7d4", 1.4),
        "eval/mean_reward": ("evaluation (mean ± std)", "#1f4e79", 2.2),
    }


def seed_curves(
    axes: "Axes",
    steps: np.ndarray,
    values: np.ndarray,
    color: str,
    *,
    width: float,
    label: str | None = None,
    single: bool = False,
    lower_is_better: bool = False,
) -> None:
    """Draw the interquartile mean of curves [seeds, points] with its 95 % interval.

    With `single`, the curve of every seed is drawn too.
    """
    marker = "o" if len(steps) == 1 else None  # a line needs two
    for curve in values if single else ():
        axes.plot(steps, curve, color=color, linewidth=0.7, alpha=0.35, marker=marker)
    iqm, low, high = stats.iqm_with_interval(values, lower_is_better=lower_is_better)
    axes.fill_between(steps, low, high, color=color, alpha=0.22, linewidth=0)
    axes.plot(steps, iqm, color=color, linewidth=width, label=label, marker=marker)


def population_curve(folder: Path, members: Sequence[TrainConfig], title: str) -> Path | None:
    """Write plots/learning_curve.png of a population; return None if there are no points."""
    steps, returns = _common_evaluations(run_dir.of_members(folder, members))
    if not len(steps):
        return None
    axes = pyplot().subplots(figsize=(7, 4), dpi=120)[1]
    for i, (label, seeds) in enumerate(variants.by_label(members).items()):
        color = _COLORS[i % len(_COLORS)]
        labels = stats.labels(len(seeds))
        name = label or f"{labels.mean} of {len(seeds)} seeds, {labels.interval}"
        seed_curves(axes, steps, returns[seeds], color, width=2.2, label=name, single=True)
    axes.set(xlabel="environment steps of each seed", ylabel="evaluated return", title=title)
    return _save_curve(axes, folder)


def _common_evaluations(folders: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which all members were evaluated, and their returns [members, points]."""
    name = "eval/mean_reward"
    logs = [
        {row["step"]: row[name] for row in read_jsonl(folder / "metrics.jsonl") if name in row}
        for folder in folders
    ]
    steps = sorted(set(logs[0]).intersection(*logs[1:]))
    return np.array(steps), np.array([[log[step] for step in steps] for log in logs])


def learning_phases(folder: Path, config: TrainConfig) -> Path | None:
    """Write plots/phases.png from metrics.jsonl; None if the environment defines no phases."""
    report = hooks.learning_phases(config, read_jsonl(folder / "metrics.jsonl"))
    if report is None:
        return None
    plt = pyplot()
    from matplotlib.ticker import EngFormatter, PercentFormatter

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5.6), dpi=120, sharex=True)
    for axes in (top, bottom):
        for number, phase in enumerate(report.phases):
            axes.axvspan(phase.start, phase.end, color="#1f4e79", alpha=0.03 + 0.04 * number, lw=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    above = top.get_xaxis_transform()
    for phase in report.phases:
        top.text(phase.start, 1.04, f" {phase.name}", rotation=30, fontsize=9, transform=above)
    top.plot(report.steps, report.success_rate, color="#1f4e79", linewidth=2.2)
    top.set(ylabel="episodes that succeed", ylim=(-0.03, 1.03), xlim=(0, report.steps[-1]))
    for i, (term, fractions) in enumerate(report.terms.items()):
        color = _TERM_COLORS[i % len(_TERM_COLORS)]
        bottom.plot(report.steps, fractions, color=color, label=term)
    bottom.set(xlabel="environment steps", ylabel="reward, fraction of its maximum")
    bottom.xaxis.set_major_formatter(EngFormatter())
    bottom.legend(
        frameon=False, ncols=len(report.terms), fontsize=9, loc="lower right", bbox_to_anchor=(1, 1)
    )
    return save(figure, folder / "plots" / "phases.png")


def outcomes(path: Path, starts: np.ndarray, successes: np.ndarray) -> None:
    """Plot start positions [episodes, 2] by outcome."""
    plt = pyplot()

    figure, axes = plt.subplots(figsize=(5, 5), dpi=120)
    for outcome, label, color, mark in (
        (True, "success", "#1f4e79", "o"),
        (False, "failure", "#c0392b", "x"),
    ):
        chosen = starts[successes == outcome]
        axes.scatter(*chosen.T, label=f"{label} ({len(chosen)})", color=color, marker=mark, s=18)
    axes.set(
        xlabel="x at the start", ylabel="y at the start", title=f"{successes.mean():.1%} succeeded"
    )
    axes.set_aspect("equal", adjustable="datalim")
    legend_above(axes)
    save(figure, path)
