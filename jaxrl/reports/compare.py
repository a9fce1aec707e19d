"""The sections of a page that compares runs."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jaxrl.loggers import run_dir
from jaxrl.reports import charts, html, media, metric_charts, resources, seeds, settings
from jaxrl.reports.charts import Line
from jaxrl.reports.html import Markup, section, tag
from jaxrl.reports.load_runs import Curve, Record
from jaxrl.reports.overview import BEST, EVALUATED, LOSS, RETURN, SUCCESS
from jaxrl.reports.seeds import Group
from jaxrl.utils import formatting, stats

_CURVES = {
    EVALUATED: "evaluated return",
    RETURN: "return in training",
    SUCCESS: "success in evaluations",
    LOSS: "loss of the learnt reward",
}


def _key(group: Group, text: str) -> Markup:
    return tag("span", text, class_=f"key c{group.color}")


def _most_seeds(groups: Sequence[Group]) -> int:
    return max(len(group.records) for group in groups)


def _have_seeds(groups: Sequence[Group]) -> bool:
    return _most_seeds(groups) > 1


def curves(groups: Sequence[Group]) -> Markup:
    """Return the main curves of all groups in common charts, one for each task."""
    tasks = seeds.by_task(groups)
    names = {task: f" of {task}" if len(tasks) > 1 else "" for task in tasks}
    drawn = [chart for task, of in tasks.items() for chart in _task_curves(of, names[task])]
    body = tag("div", *drawn, class_="pair") if drawn else ""
    labels = stats.labels(_most_seeds(groups))
    note = f"thick: {labels.mean} of the seeds, with its {labels.interval}"
    return section("Learning curves", body, note=note if _have_seeds(groups) else "")


def _task_curves(groups: Sequence[Group], task: str) -> list[Markup]:
    """Return the charts of groups that train on the same task."""
    units = " or ".join(dict.fromkeys(r.unit for g in groups for r in g.records))
    drawn = []
    for metric, title in _CURVES.items():
        logged = [_logged(group, metric) for group in groups]
        if lines := _overlaid(groups, logged, logged, lower_is_better=metric == LOSS):
            drawn.append(charts.chart(f"{title}{task} over {units}", lines, class_="large"))
        if metric == EVALUATED:
            timed = [_timed(group, metric) for group in groups]
            if lines := _overlaid(groups, timed, [seeds.resample_times(each) for each in timed]):
                drawn.append(charts.chart(f"{title}{task} over minutes", lines, class_="large"))
    return drawn


def _logged(group: Group, metric: str) -> list[Curve]:
    return [record.curves[metric] for record in group.records if metric in record.curves]


def _timed(group: Group, metric: str) -> list[Curve]:
    curves = [seeds.over_time(record, metric, resources.ELAPSED) for record in group.records]
    return [curve for curve in curves if len(curve.steps)]


def _overlaid(
    groups: Sequence[Group],
    alone: Sequence[list[Curve]],
    comparable: Sequence[list[Curve]],
    *,
    lower_is_better: bool = False,
) -> list[Line]:
    """Return single seeds as faint lines and their aggregates as thick ones."""
    lines = []
    for group, single, shared in zip(groups, alone, comparable, strict=True):
        if len(single) > 1:
            lines += [Line("", *curve, group.color, faint=True) for curve in single]
        lines += seeds.line(group, shared, lower_is_better=lower_is_better)
    return lines


def _value(
    of: Callable[[Record], float | None], write: Callable[[float], str]
) -> Callable[[Sequence[Record]], str]:
    """Return a formatter of a value: that of one run, or the IQM of several with its interval."""

    def format_value(records: Sequence[Record]) -> str:
        return _format([v for record in records if (v := of(record)) is not None], write)

    return format_value


def _outcome(
    of: Callable[[Record], float | None],
    write: Callable[[float], str],
    *,
    lower_is_better: bool = False,
) -> Callable[[Sequence[Record]], str]:
    """Return a formatter of a value that compares runs: a run without it counts as the worst."""

    def format_value(records: Sequence[Record]) -> str:
        values = [of(record) for record in records]
        if all(value is None for value in values):
            return "–"
        filled = [math.nan if value is None else value for value in values]
        return _format(filled, write, lower_is_better=lower_is_better)

    return format_value


def _format(
    values: Sequence[float], write: Callable[[float], str], *, lower_is_better: bool = False
) -> str:
    if not values:
        return "–"
    aggregates = stats.iqm_with_interval(np.array(values), lower_is_better=lower_is_better)
    iqm, low, high = (stats.format_aggregate(float(value), write) for value in aggregates)
    return iqm if low == high else f"{iqm} ({low} to {high})"


_RESULTS = {
    "last evaluation": _outcome(lambda r: r.outcome(EVALUATED), html.number),
    "best evaluation": _outcome(lambda r: r.last(BEST), html.number),
    "success": _outcome(lambda r: r.outcome(SUCCESS), lambda v: f"{v:.1%}"),
    "return in training": _outcome(lambda r: r.outcome(RETURN), html.number),
    "R_loss": _outcome(lambda r: r.outcome(LOSS), html.number, lower_is_better=True),
    "steps": _value(lambda r: r.step, html.steps),
    "time": _value(lambda r: r.last(resources.ELAPSED), formatting.duration),
    "compiling": _value(lambda r: resources.seconds(r).get("compiling"), formatting.duration),
    "steps per second": _value(lambda r: r.last(resources.SPEED), lambda v: f"{v:,.0f}"),
    "memory, MiB": _value(resources.peak_memory, lambda v: f"{v:,.0f}"),
}


def results(groups: Sequence[Group]) -> Markup:
    """Return the table of final results, one column per group."""
    rows = [(name, *(write(g.records) for g in groups)) for name, write in _RESULTS.items()]
    filled = [row for row in rows if set(row[1:]) != {"–"}]
    filled += [("runs", *(str(len(group.records)) for group in groups))]
    head = ("", *(_key(group, group.label) for group in groups))
    labels = stats.labels(_most_seeds(groups))
    note = f"of several seeds: {labels.mean} ({labels.interval})"
    table = html.table(head, filled, "figures")
    return section("Final results", table, note=note if _have_seeds(groups) else "")


def evaluations(groups: Sequence[Group]) -> Markup:
    """Return all evaluated returns, one column for each group, the newest first."""
    steps = {step for g in groups for record in g.records for step in _by_step(record)}
    rows = [
        (int(step), *(_iqm_at(step, group.records) for group in groups))
        for step in sorted(steps, reverse=True)
    ]
    units = " or ".join(dict.fromkeys(r.unit for g in groups for r in g.records))
    head = (units, *(_key(group, group.label) for group in groups))
    return section("Evaluation", html.table(head, rows, "figures") if rows else "")


def _by_step(record: Record) -> dict[float, float]:
    curve = record.curves.get(EVALUATED)
    return dict(zip(*(axis.tolist() for axis in curve), strict=True)) if curve else {}


def _iqm_at(step: float, runs: Sequence[Record]) -> str:
    """Return the IQM of the returns at a step, and how many runs have reached it."""
    evaluated = [_by_step(record) for record in runs]
    if not any(step in each for each in evaluated):
        return "–"
    reached = [
        each.get(step, math.nan)
        for each, record in zip(evaluated, runs, strict=True)
        if record.step >= step or record.diverged
    ]
    missing = len(runs) - len(reached)
    suffix = f", {len(reached)} of {len(runs)} runs" if missing else ""
    return _format(reached, html.number) + suffix


def time_and_memory(groups: Sequence[Group]) -> Markup:
    """Return the time and memory of each group."""
    parts = []
    for group in groups:
        shown = (resources.bar(_mean_seconds(group)), resources.state(group.records[0]))
        parts += [tag("div", _key(group, group.label), *shown)] if any(shown) else []
    note = "mean of the runs; seeds of one program share its time" if _have_seeds(groups) else ""
    return section("Time and memory", *parts, note=note)


def _mean_seconds(group: Group) -> dict[str, float]:
    spent = [seconds for record in group.records if (seconds := resources.seconds(record))]
    return {name: sum(s[name] for s in spent) / len(spent) for name in spent[0]} if spent else {}


def settings_of(groups: Sequence[Group]) -> Markup:
    """Return the settings of each group."""
    return settings.of_runs([(_key(g, g.label), g.records[0]) for g in groups])


def members(groups: Sequence[Group]) -> Markup:
    """Return a table of all runs with their seeds and results."""
    rows = [
        (
            _key(group, _qualified_name(record)),
            record.config.seed,
            _RESULTS["last evaluation"]([record]),
            _RESULTS["best evaluation"]([record]),
            html.steps(record.step),
            f"{record.step / record.planned:.0%}" if record.planned else "–",
        )
        for group in groups
        for record in group.records
    ]
    head = ("run", "seed", "last evaluation", "best evaluation", "steps", "of the plan")
    repeated = any(len({r.config.seed for r in g.records}) < len(g.records) for g in groups)
    note = "a seed that was run twice counts twice in the results above" if repeated else ""
    return section("Runs", html.table(head, rows, "figures"), note=note)


def _qualified_name(record: Record) -> str:
    """Return the name of a run's folder, after that of the run it is a seed of."""
    run = run_dir.population_of(record.folder)
    return f"{run.name}/{record.name}" if run else record.name


def differences(groups: Sequence[Group]) -> Markup:
    """Return the settings, versions and devices that differ between groups."""
    configs = [replace(group.records[0].config, seed=0) for group in groups]
    rows = [(name, *values) for name, values in settings.differing(configs).items()]
    every = settings.provenances([record for group in groups for record in group.records])
    by_group = [settings.provenances(group.records) for group in groups]
    for name in [name for name, values in every.items() if len(values) > 1]:
        rows.append((name, *("; ".join(each.get(name, ["–"])) for each in by_group)))
    same = tag("p", "All settings but the seed are the same.")
    head = ("setting", *(_key(group, group.label) for group in groups))
    return section("What differs", html.table(head, rows, "settings") if rows else same)


def everything(groups: Sequence[Group]) -> list[Markup]:
    """Return small charts of all metrics of all groups, one for each task."""
    names = dict.fromkeys(n for g in groups for r in g.records for n in r.curves)
    tasks = seeds.by_task(groups)
    metrics = {}
    for name, task in itertools.product(names, tasks):
        lower = "loss" in name
        lines = [
            line
            for g in tasks[task]
            for line in seeds.line(g, _logged(g, name), lower_is_better=lower)
        ]
        if lines:  # without labels: small charts have no room for them
            title = f"{name}, {task}" if len(tasks) > 1 else name
            metrics[title] = [line._replace(label="") for line in lines]
    return metric_charts.charts_of(metrics)


def videos(groups: Sequence[Group]) -> Markup:
    """Return the newest video of the first run of each group that has one."""
    parts = []
    for group in groups:
        newest = (video for r in group.records if (video := media.embedded(r.folder, 1)))
        if video := next(newest, None):
            parts.append(tag("div", _key(group, group.label), video))
    return section("Videos and images", tag("div", *parts, class_="pair") if parts else "")
