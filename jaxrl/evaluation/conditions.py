"""Trials under several conditions, side by side: by the policy and by a zero policy.

A condition has a label, as `without_plans`; that of the trials as the run has them is empty.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxrl.envs.hooks import TrialReport

_CRITERIA = {"success": "eval/success_rate", "strict_success": "eval/success_rate_strict"}


class Played(NamedTuple):
    """The results of all trials under one condition."""

    label: str
    title: str
    policy: TrialReport
    zero: TrialReport | None  # of the policy whose actions are all zero; None: it cannot be played


def metrics(every: Sequence[Played]) -> dict[str, float]:
    """Return the success rates of all conditions but those of the policy in the first."""
    return {
        "_".join(filter(None, (name.removeprefix("eval/"), each.label, who))): report.metrics[name]
        for each, who, report in _reports(every)
        for name in _CRITERIA.values()
        if name in report.metrics
    }


def add_columns(every: Sequence[Played]) -> list[dict[str, Any]]:
    """Return the table of the first condition, with the successes in all others."""
    table = [dict(row) for row in every[0].policy.table]
    for each, who, report in _reports(every):
        for row, other in zip(table, report.table, strict=True):
            for name in filter(other.__contains__, _CRITERIA):
                row["_".join(filter(None, (each.label, who, name)))] = other[name]
    return table


def text(every: Sequence[Played]) -> str:
    """Return the success rates as a table, a line for each condition."""
    lines = [f"{'success (strict)':<34} {'policy':>16} {'zero actions':>16}"]
    for each in every:
        cells = [_cell(report) for report in (each.policy, each.zero)]
        lines.append(f"{each.title:<34} {cells[0]:>16} {cells[1]:>16}")
    return "\n".join(lines)


def _reports(every: Sequence[Played]) -> list[tuple[Played, str, TrialReport]]:
    """Return all reports after the first, and which policy each is of: '' is the trained one."""
    both = [(each, who, getattr(each, who or "policy")) for each in every for who in ("", "zero")]
    return [(each, who, report) for each, who, report in both[1:] if report is not None]


def _cell(report: TrialReport | None) -> str:
    rates = [report.metrics.get(name) for name in _CRITERIA.values()] if report else []
    if not rates or rates[0] is None:
        return "-"
    return f"{rates[0]:.1%}" + ("" if rates[1] is None else f" ({rates[1]:.1%})")
