"""The parts of a page that compares runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

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


def _most_seeds(kinds: Sequence[Group]) -> int:
    return max(len(group.records) for group in kinds)


def _have_seeds(kinds: Sequence[Group]) -> bool:
    return _most_seeds(kinds) > 1


def curves(kinds: Sequence[Group]) -> Markup:
    """Return the curves that tell most, overlaid."""
    units = " or ".join(dict.fromkeys(r.unit for g in kinds for r in g.records))
    drawn = []
    for metric, title in _CURVES.items():
        found = [_logged(group, metric) for group in kinds]
        if lines := _overlaid(kinds, found, found, lower_is_better=metric == LOSS):
            drawn.append(charts.chart(f"{title} over {units}", lines, class_="large"))
        if metric == EVALUATED:
            found = [_timed(group, metric) for group in kinds]
            if lines := _overlaid(kinds, found, [seeds.at_the_same_times(each) for each in found]):
                drawn.append(charts.chart(f"{title} over minutes", lines, class_="large"))
    shown = tag("div", *drawn, class_="pair") if drawn else ""
    named = stats.labels(_most_seeds(kinds))
    note = f"thick: {named.mean} of the seeds, with its {named.interval}"
    return section("Learning curves", shown, note=note if _have_seeds(kinds) else "")


def _logged(group: Group, metric: str) -> list[Curve]:
    return [record.curves[metric] for record in group.records if metric in record.curves]


def _timed(group: Group, metric: str) -> list[Curve]:
    found = [seeds.over_time(record, metric, resources.ELAPSED) for record in group.records]
    return [curve for curve in found if len(curve.steps)]


def _overlaid(
    kinds: Sequence[Group],
    alone: Sequence[list[Curve]],
    comparable: Sequence[list[Curve]],
    *,
    lower_is_better: bool = False,
) -> list[Line]:
    """Return seeds as faint lines, and what they have in common as thick ones."""
    lines = []
    for group, single, shared in zip(kinds, alone, comparable, strict=True):
        if len(single) > 1:
            lines += [Line("", *curve, group.color, faint=True) for curve in single]
        lines += seeds.line(group, shared, lower_is_better=lower_is_better)
    return lines


def _figure(
    of: Callable[[Record], float | None], write: Callable[[float], str]
) -> Callable[[Sequence[Record]], str]:
    """Return what writes a figure: one run's own, or the middle half of several."""

    def written(records: Sequence[Record]) -> str:
        return _written([v for record in records if (v := of(record)) is not None], write)

    return written


def _outcome(
    of: Callable[[Record], float | None],
    write: Callable[[float], str],
    *,
    lower_is_better: bool = False,
) -> Callable[[Sequence[Record]], str]:
    """Return the same of a figure by which runs are compared: a run without it is the worst."""

    def written(records: Sequence[Record]) -> str:
        found = [of(record) for record in records]
        if all(value is None for value in found):
            return "–"
        values = [math.nan if value is None else value for value in found]
        return _written(values, write, lower_is_better=lower_is_better)

    return written


def _written(
    values: Sequence[float], write: Callable[[float], str], *, lower_is_better: bool = False
) -> str:
    if not values:
        return "–"
    found = stats.iqm_with_interval(np.array(values), lower_is_better=lower_is_better)
    middle, low, high = (stats.format_aggregate(float(value), write) for value in found)
    return middle if low == high else f"{middle} ({low} to {high})"


_FIGURES = {
    "last evaluation": _outcome(lambda r: r.outcome(EVALUATED), html.number),
    "best evaluation": _outcome(lambda r: r.last(BEST), html.number),
    "success": _outcome(lambda r: r.outcome(SUCCESS), lambda v: f"{v:.1%}"),
    "return in training": _outcome(lambda r: r.outcome(RETURN), html.number),
    "R_loss": _outcome(lambda r: r.outcome(LOSS), html.number, lower_is_better=True),
    "steps": _figure(lambda r: r.step, html.steps),
    "time": _figure(lambda r: r.last(resources.ELAPSED), formatting.duration),
    "compiling": _figure(lambda r: resources.seconds(r).get("compiling"), formatting.duration),
    "steps per second": _figure(lambda r: r.last(resources.SPEED), lambda v: f"{v:,.0f}"),
    "memory, MiB": _figure(resources.peak_memory, lambda v: f"{v:,.0f}"),
}


def figures(kinds: Sequence[Group]) -> Markup:
    """Return what was reached, one column for each group."""
    rows = [(name, *(write(g.records) for g in kinds)) for name, write in _FIGURES.items()]
    known = [row for row in rows if set(row[1:]) != {"–"}]
    known += [("runs", *(str(len(group.records)) for group in kinds))]
    head = ("", *(_key(group, group.label) for group in kinds))
    named = stats.labels(_most_seeds(kinds))
    note = f"of several seeds: {named.mean} ({named.interval})"
    table = html.table(head, known, "figures")
    return section("Final figures", table, note=note if _have_seeds(kinds) else "")


def evaluations(kinds: Sequence[Group]) -> Markup:
    """Return all evaluated returns, one column for each group, the newest first."""
    steps = {step for g in kinds for record in g.records for step in _by_step(record)}
    rows = [
        (int(step), *(_middle(step, group.records) for group in kinds))
        for step in sorted(steps, reverse=True)
    ]
    units = " or ".join(dict.fromkeys(r.unit for g in kinds for r in g.records))
    head = (units, *(_key(group, group.label) for group in kinds))
    return section("Evaluation", html.table(head, rows, "figures") if rows else "")


def _by_step(record: Record) -> dict[float, float]:
    curve = record.curves.get(EVALUATED)
    return dict(zip(*(axis.tolist() for axis in curve), strict=True)) if curve else {}


def _middle(step: float, runs: Sequence[Record]) -> str:
    """Write the returns at a step; runs that have not come so far, and may yet, are told apart."""
    known = [_by_step(record) for record in runs]
    if not any(step in each for each in known):
        return "–"
    there = [
        each.get(step, math.nan)
        for each, record in zip(known, runs, strict=True)
        if record.step >= step or record.diverged
    ]
    missing = len(runs) - len(there)
    return _written(there, html.number) + (f", {len(there)} of {len(runs)} runs" * bool(missing))


def time_and_memory(kinds: Sequence[Group]) -> Markup:
    """Return what each group spent its time on, and what lies in memory."""
    parts = []
    for group in kinds:
        told = (resources.bar(_mean_seconds(group)), resources.state(group.records[0]))
        parts += [tag("div", _key(group, group.label), *told)] if any(told) else []
    note = "mean of the runs; seeds of one program share its time" if _have_seeds(kinds) else ""
    return section("Time and memory", *parts, note=note)


def _mean_seconds(group: Group) -> dict[str, float]:
    known = [spent for record in group.records if (spent := resources.seconds(record))]
    return {name: sum(s[name] for s in known) / len(known) for name in known[0]} if known else {}


def settings_of(kinds: Sequence[Group]) -> Markup:
    """Return the settings of each group."""
    return settings.of_runs([(_key(g, g.label), g.records[0]) for g in kinds])


def members(kinds: Sequence[Group]) -> Markup:
    """Return every run with its seed and what it reached."""
    rows = [
        (
            _key(group, record.name),
            record.config.seed,
            _FIGURES["last evaluation"]([record]),
            _FIGURES["best evaluation"]([record]),
            html.steps(record.step),
            f"{record.step / record.planned:.0%}" if record.planned else "–",
        )
        for group in kinds
        for record in group.records
    ]
    head = ("run", "seed", "last evaluation", "best evaluation", "steps", "of the plan")
    twice = any(len({r.config.seed for r in g.records}) < len(g.records) for g in kinds)
    note = "a seed that is there twice counts twice in the figures above" if twice else ""
    return section("Runs", html.table(head, rows, "figures"), note=note)


def differences(kinds: Sequence[Group]) -> Markup:
    """Return the settings, versions and devices that are not the same everywhere."""
    configs = [replace(group.records[0].config, seed=0) for group in kinds]
    rows = [(name, *values) for name, values in settings.differing(configs).items()]
    every = settings.origins([record for group in kinds for record in group.records])
    origins = [settings.origins(group.records) for group in kinds]
    for name in [name for name, values in every.items() if len(values) > 1]:
        rows.append((name, *("; ".join(each.get(name, ["–"])) for each in origins)))
    told = tag("p", "The settings are the same in all of them, but for the seed.")
    head = ("setting", *(_key(group, group.label) for group in kinds))
    return section("What differs", html.table(head, rows, "settings") if rows else told)


def everything(kinds: Sequence[Group]) -> list[Markup]:
    """Return small charts of all metrics, overlaid."""
    names = dict.fromkeys(n for g in kinds for r in g.records for n in r.curves)
    found = {
        n: [one for g in kinds for one in seeds.line(g, _logged(g, n), lower_is_better="loss" in n)]
        for n in names
    }
    # Colours are explained above; names in every small chart would leave no room for it.
    plain = {n: [one._replace(label="") for one in lines] for n, lines in found.items() if lines}
    return metric_charts.charts_of(plain)


def films(kinds: Sequence[Group]) -> Markup:
    """Return the newest film of the first run of each group that has one."""
    shown = []
    for group in kinds:
        found = (film for record in group.records if (film := media.films(record.folder, 1)))
        if film := next(found, None):
            shown.append(tag("div", _key(group, group.label), film))
    return section("Films and pictures", tag("div", *shown, class_="pair") if shown else "")
