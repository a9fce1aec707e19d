"""Pictures of a run: its learning curve, its phases, and where its episodes succeeded."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.envs import hooks
from jaxrl.loggers.sinks import read_jsonl
from jaxrl.utils import atomic_io

_TERM_COLORS = ("#8a6d3b", "#d9822b", "#7a6ff0", "#3d8b5f", "#1f4e79")


def pyplot() -> Any:
    """Import what draws, which takes a while, for machines without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path) -> Path:
    """Write a picture in the manner of all of them."""
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
    """Draw plots/learning_curve.png from metrics.jsonl; None when there is nothing to draw."""
    plt = pyplot()
    from matplotlib.ticker import EngFormatter

    rows = read_jsonl(folder / "metrics.jsonl")
    styles = _styles(rows)
    figure, axes = plt.subplots(figsize=(7, 4), dpi=120)
    drawn = False
    for name, (label, color, width) in styles.items():
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points:
            drawn = True
            axes.plot(*zip(*points, strict=True), label=label, color=color, linewidth=width)
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
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(frameon=False)
    return save(figure, folder / "plots" / "learning_curve.png")


def _styles(rows: list[dict[str, float]]) -> dict[str, tuple[str, str, float]]:
    """Return what to draw, as (label, color, width): returns, or a loss where nobody played."""
    played = any("rollout/ep_rew_mean" in row or "eval/mean_reward" in row for row in rows)
    if not played and any("train/R_loss" in row for row in rows):
        return {"train/R_loss": ("loss of the learnt reward", "#1f4e79", 2.2)}
    return {
        "rollout/ep_rew_mean": ("training episodes", "#9bb7d4", 1.4),
        "eval/mean_reward": ("evaluation (mean ± std)", "#1f4e79", 2.2),
    }


def learning_phases(folder: Path, config: TrainConfig) -> Path | None:
    """Draw plots/phases.png from metrics.jsonl; None if the environment defines no phases."""
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
    for i, (term, values) in enumerate(report.terms.items()):
        color = _TERM_COLORS[i % len(_TERM_COLORS)]
        bottom.plot(report.steps, values, color=color, label=term)
    bottom.set(xlabel="environment steps", ylabel="reward, of the most it paid")
    bottom.xaxis.set_major_formatter(EngFormatter())
    bottom.legend(frameon=False, ncols=len(report.terms), fontsize=9, loc="lower right")
    return save(figure, folder / "plots" / "phases.png")


def outcomes(path: Path, starts: np.ndarray, successes: np.ndarray) -> None:
    """Draw where episodes started, [episodes, 2], and which of them succeeded."""
    plt = pyplot()

    figure, axes = plt.subplots(figsize=(5, 5), dpi=120)
    for won, label, color, mark in (
        (True, "success", "#1f4e79", "o"),
        (False, "failure", "#c0392b", "x"),
    ):
        chosen = starts[successes == won]
        axes.scatter(*chosen.T, label=f"{label} ({len(chosen)})", color=color, marker=mark, s=18)
    axes.set(
        xlabel="x at the start", ylabel="y at the start", title=f"{successes.mean():.1%} succeeded"
    )
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(frameon=False)
    save(figure, path)
