"""Tables of evaluations: those of the run, and later ones by `jaxrl.evaluate`."""

from pathlib import Path
from typing import Any

from jaxrl.reports import html, load_runs, media
from jaxrl.reports.html import Markup, section, tag
from jaxrl.reports.load_runs import Record
from jaxrl.reports.overview import EVALUATED

_MISSING = Markup("–")


def evaluations(record: Record) -> Markup:
    """Return all evaluations of a run."""
    rows = [row for row in record.rows if EVALUATED in row]
    parts = [_during(record, rows)] if rows else []
    for file in sorted(record.folder.glob("evaluation-*.json")):
        parts += _afterwards(file.name, load_runs.json_object(file))
    parts += media.clip_tables(record.folder)
    parts += _held_out(record.folder)
    return section("Evaluation", *parts)


def _during(record: Record, rows: list[dict[str, float]]) -> Markup:
    names = [name for name in record.curves if name.startswith("eval/")]
    head = (record.unit, *(_words(name.removeprefix("eval/")) for name in names))
    cells = [[int(row["step"]), *(row.get(n, _MISSING) for n in names)] for row in rows[::-1]]
    return html.table(head, cells, "figures")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _afterwards(name: str, report: dict[str, Any]) -> list[Markup]:
    """Return the tables of one evaluation file, without single episodes."""
    intervals = _dict(report.get("confidence"))
    conditions = {k: v for k, v in report.items() if isinstance(v, str | int)}
    metrics = {k: v for k, v in report.items() if isinstance(v, float)}
    rows = [(_words(key), value, _interval(intervals.get(key))) for key, value in metrics.items()]
    text = " · ".join(f"{_words(key)} {value}" for key, value in conditions.items())
    parts = [tag("h3", name), tag("p", text, class_="soft")]
    parts.append(html.table(("", "value", "95 % interval"), rows, "figures"))
    outcomes = {k: _dict(v) for k, v in _dict(report.get("by_outcome")).items()}
    if outcomes:
        cells = [(_words(k), *(_value(v.get(o)) for o in _OUTCOMES)) for k, v in outcomes.items()]
        parts.append(html.table(("mean of episodes that", *_OUTCOMES), cells, "figures"))
    return parts if rows else []


_OUTCOMES = ("failed", "succeeded")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _interval(ends: Any) -> str:
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(html.is_number, ends)):
        return ""
    return f"{html.number(ends[0])} to {html.number(ends[1])}"


def _value(value: Any) -> Any:
    return value if html.is_number(value) else _MISSING


def _held_out(folder: Path) -> list[Markup]:
    """Return the accuracy of a learnt reward on held-out episodes."""
    accuracy = load_runs.json_object(folder / "rewards.json")
    if not accuracy:
        return []
    head = [_words(name) for name in accuracy]
    table = html.table(head, [[_value(v) for v in accuracy.values()]], "figures")
    return [tag("h3", "learnt reward on held-out episodes"), table]
