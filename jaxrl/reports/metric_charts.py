"""All logged metrics as small charts, in groups."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jaxrl.reports import charts, html
from jaxrl.reports.charts import Line
from jaxrl.reports.html import Markup, section, tag

_TERM = "rollout/ep_reward_"
_TITLES = {
    _TERM: "Reward terms",
    "rollout": "Episodes",
    "eval": "Evaluation curves",
    "train": "Learning",
    "iterations": "Every iteration",
}
# Counters, and metrics of other sections.
_COUNTERS = {
    *("rollout/episodes", "data/episodes", "data/steps"),
    *("train/n_updates", "eval/best_mean_reward"),
}


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of metrics by the titles of their groups, without those of time.

    A task may follow the name of a metric, after a comma.
    """
    groups: dict[str, list[str]] = {title: [] for title in _TITLES.values()}
    for name in names:
        metric = name.partition(", ")[0]
        prefix = _TERM if metric.startswith(_TERM) else metric.rpartition("/")[0]
        if prefix != "time" and metric not in _COUNTERS:
            title = _TITLES.get(prefix, prefix.capitalize() or "Other")
            groups.setdefault(title, []).append(name)
    return {title: group for title, group in groups.items() if group}


def charts_of(metrics: Mapping[str, Sequence[Line]]) -> list[Markup]:
    """Return one section per group; constant metrics are listed in one line."""
    return [_group(t, {n: metrics[n] for n in names}) for t, names in grouped(metrics).items()]


def _group(title: str, metrics: dict[str, Sequence[Line]]) -> Markup:
    constant = {n: v for n, lines in metrics.items() if (v := only_value(lines)) is not None}
    drawn = [
        charts.chart(_short(name), lines, full_name=name)
        for name, lines in metrics.items()
        if name not in constant
    ]
    listed = ", ".join(f"{_short(name)} {html.number(value)}" for name, value in constant.items())
    return section(
        title,
        tag("div", *drawn, class_="charts") if drawn else "",
        tag("p", f"constant: {listed}", class_="soft") if listed else "",
    )


def _short(name: str) -> str:
    metric, *task = name.split(", ", 1)
    start = _TERM if metric.startswith(_TERM) else metric.rpartition("/")[0] + "/"
    return ", ".join([metric.removeprefix(start), *task])


def only_value(lines: Sequence[Line]) -> float | None:
    """Return the value of a metric that is constant over two or more points, or None."""
    values = np.concatenate([line.y for line in lines])
    constant = len(values) > 1 and np.all(values == values[0])
    return float(values[0]) if constant else None
