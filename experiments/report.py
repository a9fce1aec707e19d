"""What a study leaves behind: curves with bands, final figures with intervals, comparisons."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.study import PLAIN, Study
from jaxrl import statistics

_COLORS = ("#1f4e79", "#d9822b", "#3d8b5f", "#a8326e", "#7a6ff0", "#8a6d3b", "#5c6b7a", "#c94f4f")


class _Bar:
    def __init__(self, progress: Any, total: int):
        self._progress, self._task = progress, progress.add_task("", total=total)

    def say(self, text: str) -> None:
        """Show what is being run."""
        self._progress.update(self._task, description=text)

    def advance(self) -> None:
        """Note one evaluation more."""
        self._progress.advance(self._task)


@contextlib.contextmanager
def progress(total: int) -> Iterator[_Bar]:
    """Show one bar for the whole study, with the time that is left."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as shown:
        yield _Bar(shown, total)


def by_variant(rows: list[dict[str, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return steps [points] and returns [seeds, points] of each variant."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        found.setdefault(row["variant"], []).append(row)
    return {
        name: (np.array(runs[0]["steps"]), np.array([run["returns"] for run in runs]))
        for name, runs in found.items()
    }


def write(name: str, study: Study, rows: list[dict[str, Any]], out: Path) -> None:
    """Write results.md and its pictures."""
    curves = by_variant(rows)
    order = [variant for variant in (PLAIN, *study.variants) if variant in curves]
    _draw_curves(curves, order, out / "curves.png")
    _draw_finals(curves, order, out / "finals.png")
    seeds = len(next(iter(curves.values()))[1])
    lines = [
        f"# {name}",
        "",
        f"Preset `{study.preset}`, {seeds} seeds for each variant. Returns are interquartile means "
        "of the last evaluation, with 95 % bootstrap intervals over seeds. The last column is the "
        "share of pairs of runs in which the variant does better than the preset as it is.",
        "",
        "| variant | changes | return | interval | better |",
        "|---|---|---:|---:|---:|",
        *(_line(study, curves, variant) for variant in order),
        "",
        "![learning curves](curves.png)",
        "",
        "![final returns](finals.png)",
        "",
    ]
    (out / "results.md").write_text("\n".join(lines))


def _line(study: Study, curves: dict, variant: str) -> str:
    final = curves[variant][1][:, -1]
    low, high = statistics.interval(final)
    changes = ", ".join(f"`{k} = {v}`" for k, v in study.variants.get(variant, {}).items())
    better = ""
    if variant != PLAIN and PLAIN in curves:
        share = statistics.probability_of_improvement(final, curves[PLAIN][1][:, -1])
        better = f"{100 * share:.0f} %"
    middle = statistics.interquartile_mean(final)
    return f"| {variant} | {changes} | {middle:,.1f} | {low:,.1f} to {high:,.1f} | {better} |"


def _figure(width: float, height: float):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height))
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw_curves(curves: dict, order: list[str], path: Path) -> None:
    figure, axes = _figure(8, 4.5)
    for color, variant in zip(_cycled(order), order, strict=True):
        steps, returns = curves[variant]
        low, high = statistics.interval(returns)
        axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        middle = statistics.interquartile_mean(returns, axis=0)
        axes.plot(steps, middle, color=color, label=variant)
    axes.set(xlabel="environment steps", ylabel="evaluated return")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


def _draw_finals(curves: dict, order: list[str], path: Path) -> None:
    figure, axes = _figure(7, 0.8 + 0.35 * len(order))
    for place, (color, variant) in enumerate(zip(_cycled(order), order, strict=True)):
        final = curves[variant][1][:, -1]
        low, high = statistics.interval(final)
        axes.plot([low, high], [place, place], color=color, linewidth=6, alpha=0.35)
        axes.plot(final, [place] * len(final), "o", color=color, markersize=3)
        axes.plot(statistics.interquartile_mean(final), place, "|", color=color, markersize=14)
    axes.set(yticks=range(len(order)), yticklabels=order, xlabel="final return")
    axes.invert_yaxis()
    _save(figure, path)


def _cycled(order: list[str]) -> list[str]:
    return [_COLORS[i % len(_COLORS)] for i in range(len(order))]
