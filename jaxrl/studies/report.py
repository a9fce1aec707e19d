"""The report of a study: curves with bands, final results with intervals, comparisons.

The plots are functions of records, for results.md and for notebooks.
`python -m jaxrl.studies.report STUDY` rewrites the report from the stored table.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxrl.errors import UserError, exit_status
from jaxrl.reports import plots
from jaxrl.studies import provenance
from jaxrl.studies import study as studies
from jaxrl.studies.results import Record, read_table
from jaxrl.studies.study import BASE, Study
from jaxrl.utils import stats
from jaxrl.utils.formatting import plural

_COLOR, _GREY = "#1f6fb4", "#8a8f98"
_COLUMNS = 4


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m jaxrl.studies.report", description="Rewrite results.md from results.csv."
    )
    parser.add_argument("study", help="a Python file, or its name in studies/")
    parser.add_argument(
        "--out", type=Path, help="folder; results/STUDY beside studies/ if not given"
    )
    args = parser.parse_args(arguments)
    return exit_status(lambda: rewrite(args.study, args.out))


def rewrite(name: str, out: Path | None = None) -> None:
    """Write the report of a finished study, with the settings of its runs."""
    out = out or studies.results_folder(name)
    write(Path(name).stem, *stored(name, out), out)


def stored(name: str, out: Path) -> tuple[Study, list[Record]]:
    """Return a finished study, with the settings of its runs, and its results."""
    chosen = studies.load(name)
    if not (out / "results.csv").exists():
        raise UserError(f"'{out}' has no results.csv: run the study first.")
    if source := provenance.read(out):
        chosen = replace(chosen, settings=source[0])
    if provenance.is_smoke_test(out):
        chosen = chosen.smoke_test()
    records = read_table(out / "results.csv")
    for variant in dict.fromkeys(record.variant for record in records):
        if variant not in (BASE, *chosen.variants):
            raise UserError(
                f"'{out / 'results.csv'}' has a variant '{variant}' that the study lacks: "
                f"name it in {studies.find(name)}, or run the study again."
            )
    return chosen, records


def by_variant(study: Study, records: list[Record]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return steps [points] and the study's metric [seeds, points] of each variant, in order."""
    grouped: dict[str, list[Record]] = {name: [] for name in (BASE, *study.variants)}
    for record in sorted(records, key=lambda record: record.seed):
        grouped[record.variant].append(record)
    return {
        name: (np.array(runs[0].steps), np.array([_metric(study, run) for run in runs]))
        for name, runs in grouped.items()
        if runs
    }


def _metric(study: Study, run: Record) -> list[float]:
    return run.metrics.get(study.metric, [np.nan] * len(run.steps))


def write(name: str, study: Study, records: list[Record], out: Path) -> None:
    """Write results.md and its plots."""
    for file, draw in (("curves.png", draw_curves), ("finals.png", draw_finals)):
        draw(study, records).savefig(out / file, dpi=130)
    (out / "results.md").write_text(text(name, study, records, out), encoding="utf-8")
    print(f"written to {out / 'results.md'}")


def text(name: str, study: Study, records: list[Record], out: Path) -> str:
    """Return results.md."""
    return f"""# {name}

{_explanation(study, records)}

{table(study, records)}

![learning curves](curves.png)

![final results](finals.png)
{_provenance(study, out)}"""


def _explanation(study: Study, records: list[Record]) -> str:
    """Return a paragraph about the runs and the columns of the table."""
    curves = by_variant(study, records)
    common = f" with {_changes(study.settings)}" if study.settings else ""
    base = "these settings and no others" if common else "the preset unchanged"
    seeds = len(curves[BASE][1])
    labels = stats.labels(seeds)
    length = "" if _differ_in_length(curves) else f" of {short(curves[BASE][0][-1])} steps"
    return (
        f"Preset `{study.preset}`{common}. {plural(seeds, 'seed')}{length} for each variant. "
        f"`{study.metric}` of the last evaluation as {labels.mean}s with {labels.interval}s over "
        "seeds. *Better* is the fraction of pairs of runs in which the variant does "
        f"better than *{BASE}*, {base}; {'lower' if study.lower_is_better else 'higher'} is better."
    )


def _differ_in_length(curves: dict) -> bool:
    return len({steps[-1] for steps, _ in curves.values()}) > 1


def _provenance(study: Study, out: Path) -> str:
    """Return the provenance of the results, as far as it is known."""
    source = provenance.read(out)
    lines = [f"- {each.describe()}" for each in (source[1] if source else [])]
    if lines:
        lines = ["", "Made by", "", *lines]
    if study.is_smoke_test:
        lines += ["", "A smoke test (`--smoke`): these are not results."]
    return "".join(f"{line}\n" for line in lines)


def _changes(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name} = {value}`" for name, value in settings.items())


def table(study: Study, records: list[Record]) -> str:
    """Return the last evaluations as a table in Markdown."""
    curves = by_variant(study, records)
    differ, labels = _differ_in_length(curves), stats.labels(len(curves[BASE][1]))
    head = ["variant", "changes", *["steps"] * differ, labels.mean, labels.interval, "better"]
    rows = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for variant, (steps, values) in curves.items():
        results = stats.iqm_with_interval(values[:, -1], lower_is_better=study.lower_is_better)
        mean, low, high = (stats.format_aggregate(float(value), short) for value in results)
        better = f"{100 * _better(study, curves, variant):.0f} %" if variant != BASE else ""
        cells = [mean, f"{low} to {high}", better]
        changes = _changes(study.variants.get(variant, {}))
        rows.append([variant, changes, *[short(steps[-1])] * differ, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _better(study: Study, curves: dict, variant: str) -> float:
    """Return the fraction of pairs in which a variant beats the one without changes."""
    final, plain = (curves[name][1][:, -1] for name in (variant, BASE))
    lower = study.lower_is_better
    return stats.probability_of_improvement(final, plain, lower_is_better=lower)


def short(number: float) -> str:
    """Return a number with three or four digits as text."""
    if abs(number) >= 1e6:
        return f"{number / 1e6:,.3g} M"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def draw_curves(study: Study, records: list[Record]) -> Figure:
    """Draw one panel per variant: its curve, over the one without changes in grey."""
    curves = by_variant(study, records)
    variants = [name for name in curves if name != BASE] or [BASE]
    columns = min(_COLUMNS, len(variants))
    rows = -(-len(variants) // columns)
    figure = Figure(figsize=(2.6 * columns + 0.6, 2.0 * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for spare in range(len(variants), rows * columns):
        grid.flat[spare].remove()
        grid.flat[spare - columns].tick_params(labelbottom=True)  # the last of its column now
    for axes, variant in zip(grid.flat, variants, strict=False):
        for name, color in ((BASE, _GREY), (variant, _COLOR)):
            lower = study.lower_is_better
            plots.seed_curves(axes, *curves[name], color, width=1.5, lower_is_better=lower)
        axes.set_title(variant, fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(steps_label)
        _plain(axes)
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel(f"{study.metric} (grey: {BASE})", fontsize=9)
    return figure


def draw_finals(study: Study, records: list[Record]) -> Figure:
    """Draw the last evaluations with intervals, and how often each variant does better."""
    curves = by_variant(study, records)
    figure = Figure(figsize=(8.5, 0.9 + 0.28 * len(curves)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    for place, (variant, (_, values)) in enumerate(curves.items()):
        final, color = values[:, -1], _GREY if variant == BASE else _COLOR
        bar = {"color": color, "linewidth": 7, "alpha": 0.3, "solid_capstyle": "butt"}
        mean, *ends = stats.iqm_with_interval(final, lower_is_better=study.lower_is_better)
        left.plot(ends, [place] * 2, **bar)
        left.plot(final, [place] * len(final), ".", color=color, markersize=4)
        left.plot(mean, place, "|", color=color, markersize=13)
        if variant == BASE:
            left.axvline(float(mean), color=_GREY, linewidth=0.8, linestyle=":")
        else:
            right.plot(_better(study, curves, variant), place, "o", color=color, markersize=5)
    right.axvline(0.5, color=_GREY, linewidth=0.8, linestyle=":")
    left.set(yticks=range(len(curves)), yticklabels=[*curves], xlabel=study.metric)
    right.set(xlim=(-0.05, 1.05), xticks=(0, 0.5, 1), xlabel=f"better than {BASE}")
    left.invert_yaxis()
    _plain(left)
    _plain(right)
    return figure


def steps_label(steps: float, position: float) -> str:
    """Return the label of a tick on an axis of steps, for matplotlib."""
    del position
    return f"{steps / 1e6:.3g} M" if steps >= 1e5 else short(steps)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


if __name__ == "__main__":
    sys.exit(main())
