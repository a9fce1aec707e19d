"""Trials under several conditions, side by side: by the policy and by a zero policy.

A condition has a label, as `without_plans`; that of the trials as the run has them is empty.
Compared are the environment's `trial_criteria`: columns of its table, and the metric of each.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxrl.envs.hooks import TrialReport


class Played(NamedTuple):
    """The results of all trials under one condition."""

    label: str
    title: str
    policy: TrialReport
    zero: TrialReport | None  # of the policy whose actions are all zero; None: it cannot be played


def metrics(every: Sequence[Played], criteria: Mapping[str, str]) -> dict[str, float]:
    """Return the rates of all conditions but those of the policy in the first."""
    return {
        "_".join(filter(None, (name.removeprefix("eval/"), each.label, who))): report.metrics[name]
        for each, who, report in _reports(every)
        for name in criteria.values()
        if name in report.metrics
    }


def add_columns(every: Sequence[Played], criteria: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the table of the first condition, with the successes in all others."""
    table = [dict(row) for row in every[0].policy.table]
    for each, who, report in _reports(every):
        for row, other in zip(table, report.table, strict=True):
            for name in filter(other.__contains__, criteria):
                row["_".join(filter(None, (each.label, who, name)))] = other[name]
    return table


def text(every: Sequence[Played], criteria: Mapping[str, str]) -> str:
    """Return the rates as a table, a line for each condition."""
    first, *others = (name.replace("_", " ") for name in criteria)
    heading = f"{first} ({', '.join(others)})" if others else first
    lines = [f"{heading:<34} {'policy':>16} {'zero actions':>16}"]
    for each in every:
        cells = [_cell(report, criteria) for report in (each.policy, each.zero)]
        lines.append(f"{each.title:<34} {cells[0]:>16} {cells[1]:>16}")
    return "\n".join(lines)


def _reports(every: Sequence[Played]) -> list[tuple[Played, str, TrialReport]]:
    """Return all reports after the first, and which policy each is of: '' is the trained one."""
    pairs = [(each, who) for each in every for who in ("", "zero")]
    found = [(each, who, getattr(each, who or "policy")) for each, who in pairs[1:]]
    return [(each, who, report) for each, who, report in found if report is not None]


def _cell(report: TrialReport | None, criteria: Mapping[str, str]) -> str:
    if report is None:
        return "-"
    rates = [report.metrics.get(name) for name in criteria.values()]
    first, *others = ("-" if rate is None else f"{rate:.1%}" for rate in rates)
    return f"{first} ({', '.join(others)})" if others else first
