"""Groups of runs that differ only in their seed."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxrl.loggers import run_dir
from jaxrl.reports import settings
from jaxrl.reports.charts import Line
from jaxrl.reports.load_runs import Curve, Record
from jaxrl.utils import stats

_COLORS = 8  # of the page
_POINTS = 150  # of a curve with an interval
_RESAMPLES = 500  # for the interval of a curve


class Group(NamedTuple):
    """Runs of the same settings."""

    label: str
    records: list[Record]
    color: int


def groups(records: Sequence[Record]) -> list[Group]:
    """Group runs by their settings without the seed, and label each group."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(repr(settings.flat(replace(record.config, seed=0))), []).append(record)
    members = list(grouped.values())
    labelled = zip(_labels(members), members, strict=True)
    return [Group(label, runs, i % _COLORS) for i, (label, runs) in enumerate(labelled)]


def _labels(groups: list[list[Record]]) -> list[str]:
    """Label groups by preset and the settings that differ, by preset alone, or by folder."""
    configs = [replace(group[0].config, seed=0) for group in groups]
    changed = settings.differing(configs)
    changed.pop("preset", None)
    changes = [
        [f"{n.split('.')[-1]} {v[i]}" for n, v in changed.items()] for i in range(len(groups))
    ]
    labels = [", ".join([c.preset, *more]) for c, more in zip(configs, changes, strict=True)]
    if len(changed) <= 2 and len(set(labels)) == len(labels):
        return labels
    presets = [config.preset for config in configs]
    return presets if len(set(presets)) == len(presets) else list(map(_folder_name, groups))


def _folder_name(group: list[Record]) -> str:
    """Return the name of a group's first run; of seeds that share a program, that of the run."""
    first = group[0]
    if (run := run_dir.population_of(first.folder)) is None:
        return first.name
    variant = first.name.rpartition("seed-")[0].rstrip(",")
    return f"{run.name}/{variant}" if variant else run.name


def by_task(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups of each environment: returns of others have another scale."""
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.records[0].config.env, []).append(group)
    return tasks


def aggregate(
    curves: Sequence[Curve], *, lower_is_better: bool = False
) -> tuple[np.ndarray, ...] | None:
    """Return (steps, interquartile means, low, high) at the steps that all curves have.

    A non-finite point counts as the worst.
    """
    steps = functools.reduce(np.intersect1d, [c.steps for c in curves])
    if not len(steps):
        return None
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, _POINTS).round().astype(int))]
    by_step = [dict(zip(c.steps.tolist(), c.values.tolist(), strict=True)) for c in curves]
    values = np.array([[points[step] for step in steps.tolist()] for points in by_step])
    return steps, *stats.iqm_with_interval(values, _RESAMPLES, lower_is_better=lower_is_better)


def line(group: Group, curves: Sequence[Curve], *, lower_is_better: bool = False) -> list[Line]:
    """Return one curve unchanged, several as their IQM with its interval, as a list of lines."""
    if len(curves) == 1:
        return [Line(group.label, *curves[0], group.color)]
    if not curves or (band := aggregate(curves, lower_is_better=lower_is_better)) is None:
        return []
    steps, iqm, low, high = band
    return [Line(group.label, steps, iqm, group.color, low, high)]


def over_time(record: Record, metric: str, clock: str) -> Curve:
    """Return a metric over minutes instead of steps."""
    rows = [row for row in record.rows if metric in row and np.isfinite(row.get(clock, np.nan))]
    return Curve(
        np.array([row[clock] / 60 for row in rows], np.float64),
        np.array([row[metric] for row in rows], np.float64),
    )


def resample_times(curves: Sequence[Curve]) -> list[Curve]:
    """Return curves interpolated at common times."""
    curves = [curve for curve in curves if len(curve.steps)]
    if len(curves) < 2:
        return curves
    first, last = max(c.steps[0] for c in curves), min(c.steps[-1] for c in curves)
    times = np.linspace(first, last, _POINTS) if last > first else np.zeros(0)
    return [Curve(times, np.interp(times, c.steps, c.values)) for c in curves]
