"""Runs that differ in nothing but their seed, taken together."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxrl.reports import settings
from jaxrl.reports.charts import Line
from jaxrl.reports.load_runs import Curve, Record
from jaxrl.utils import stats

_COLORS = 8  # of the page
_POINTS = 150  # of a curve with an interval
_DRAWS = 500  # of seeds, for the interval of a curve


class Group(NamedTuple):
    """Runs of the same settings."""

    label: str
    records: list[Record]
    color: int


def groups(records: Sequence[Record]) -> list[Group]:
    """Sort runs by their settings, seeds apart, and give each sort a name."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(repr(settings.flat(replace(record.config, seed=0))), []).append(record)
    kinds = list(found.values())
    named = zip(_labels(kinds), kinds, strict=True)
    return [Group(label, kind, i % _COLORS) for i, (label, kind) in enumerate(named)]


def _labels(kinds: list[list[Record]]) -> list[str]:
    """Name runs by their preset and by what is different about them, or else by their folders."""
    configs = [replace(kind[0].config, seed=0) for kind in kinds]
    changed = settings.differing(configs)
    changed.pop("preset", None)
    told = [[f"{n.split('.')[-1]} {v[i]}" for n, v in changed.items()] for i in range(len(kinds))]
    labels = [", ".join([c.preset, *more]) for c, more in zip(configs, told, strict=True)]
    short = len(changed) <= 2 and len(set(labels)) == len(labels)
    return labels if short else [kind[0].name for kind in kinds]


def together(
    curves: Sequence[Curve], *, lower_is_better: bool = False
) -> tuple[np.ndarray, ...] | None:
    """Return (steps, interquartile means, low, high) where all curves have a point.

    A point that is no number counts as the worst there is.
    """
    steps = functools.reduce(np.intersect1d, [c.steps for c in curves])
    if not len(steps):
        return None
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, _POINTS).round().astype(int))]
    known = [dict(zip(c.steps.tolist(), c.values.tolist(), strict=True)) for c in curves]
    values = np.array([[each[step] for step in steps.tolist()] for each in known])
    return steps, *stats.iqm_with_interval(values, _DRAWS, lower_is_better=lower_is_better)


def line(group: Group, curves: Sequence[Curve], *, lower_is_better: bool = False) -> list[Line]:
    """Return one curve as it is, several as their middle and its interval; none where none is."""
    if len(curves) == 1:
        return [Line(group.label, *curves[0], group.color)]
    if not curves or (band := together(curves, lower_is_better=lower_is_better)) is None:
        return []
    steps, middle, low, high = band
    return [Line(group.label, steps, middle, group.color, low, high)]


def over_time(record: Record, metric: str, clock: str) -> Curve:
    """Return a metric over minutes instead of steps."""
    rows = [row for row in record.rows if metric in row and np.isfinite(row.get(clock, np.nan))]
    return Curve(
        np.array([row[clock] / 60 for row in rows], np.float64),
        np.array([row[metric] for row in rows], np.float64),
    )


def at_the_same_times(curves: Sequence[Curve]) -> list[Curve]:
    """Return curves read off at moments that all of them have, as clocks never agree."""
    curves = [curve for curve in curves if len(curve.steps)]
    if len(curves) < 2:
        return curves
    first, last = max(c.steps[0] for c in curves), min(c.steps[-1] for c in curves)
    moments = np.linspace(first, last, _POINTS) if last > first else np.zeros(0)
    return [Curve(moments, np.interp(moments, c.steps, c.values)) for c in curves]
