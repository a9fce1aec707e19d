"""Time and memory of a run."""

import itertools

import numpy as np

from jaxrl.reports import charts, html, load_runs
from jaxrl.reports.charts import Line
from jaxrl.reports.html import Markup, section, tag
from jaxrl.reports.load_runs import Record
from jaxrl.utils import formatting

SPEED, ELAPSED = "time/fps", "time/time_elapsed"
_CHARTS = {
    SPEED: "steps per second",
    "time/memory_mb": "device memory, MiB",
    "time/host_memory_mb": "process memory, MiB",
}
_LISTED = 0.01  # smallest fraction of the training state that is listed


def peak_memory(record: Record) -> float | None:
    """Return the peak memory in MiB; of runs without it, the largest after any cycle."""
    values = [*record.finite("time/peak_memory_mb"), *record.finite("time/memory_mb")]
    return float(max(values)) if values else None


def seconds(record: Record) -> dict[str, float]:
    """Return the seconds of each activity; empty if they were not logged.

    A resumed run compiled more than once: each process logs its own time in every cycle.
    """
    if ELAPSED not in record.curves:
        return {}
    compilations = record.finite("time/compile_seconds").tolist()
    spent = {
        "compiling": sum(value for value, _ in itertools.groupby(compilations)),
        "training": float(record.finite("time/cycle_seconds").sum()),
        "evaluating": float(record.finite("time/eval_seconds").sum()),
    }
    total = record.last(ELAPSED) or 0.0
    return spent | {"saving, logging": max(0.0, total - sum(spent.values()))}


def time_and_memory(record: Record) -> Markup:
    """Return the section about time, speed and memory."""
    curves = record.curves
    titles = {n: t for n, t in _CHARTS.items() if n in curves and not _is_duplicate(record, n)}
    drawn = [
        charts.chart(title, [Line("", *curves[name])], full_name=name)
        for name, title in titles.items()
    ]
    return section(
        "Time and memory",
        bar(seconds(record)),
        tag("div", *drawn, class_="charts") if drawn else "",
        state(record),
    )


def _is_duplicate(record: Record, name: str) -> bool:
    """Return whether this is the process's memory and the device is the CPU: both are equal."""
    device = record.curves.get("time/memory_mb")
    same = device is not None and np.array_equal(device.values, record.curves[name].values)
    return name == "time/host_memory_mb" and same


def bar(spent: dict[str, float]) -> Markup:
    """Return a bar of the seconds of each activity, with its legend."""
    total = sum(spent.values())
    if not total:
        return Markup("")
    bars, keys = [], []
    for color, (name, value) in enumerate(spent.items()):
        bars.append(tag("div", class_=f"c{color}", style=f"flex:{value / total:.4f}"))
        label = f"{name} {formatting.duration(value)} ({value / total:.0%})"
        keys.append(tag("span", label, class_=f"key c{color}"))
    return Markup(tag("div", *bars, class_="bar") + tag("div", *keys, class_="legend"))


def state(record: Record) -> Markup:
    """Return a table of the parts of the training state; seeds of one program share one state."""
    own, shared = (load_runs.state_bytes(f) for f in (record.folder, record.folder.parent))
    parts = own or shared
    if not parts:
        return Markup("")
    total = sum(parts.values())
    large = {name: size for name, size in parts.items() if size >= _LISTED * total}
    rows = sorted(large.items(), key=lambda part: -part[1])
    rows += [("smaller parts", total - sum(large.values())), ("total", total)]
    cells = [(name, f"{size / 2**20:,.2f}") for name, size in rows]
    title = "training state" if own else "training state of all seeds"
    return html.table((f"{title}, as saved", "MiB"), cells, "figures")
