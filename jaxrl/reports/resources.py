"""Where time and memory went."""

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
_LISTED = 0.01  # share of the training state that is worth a line


def peak_memory(record: Record) -> float | None:
    """Return the most MiB that were in use; of older runs, after any cycle."""
    values = [*record.finite("time/peak_memory_mb"), *record.finite("time/memory_mb")]
    return float(max(values)) if values else None


def seconds(record: Record) -> dict[str, float]:
    """Return what a run spent its time on; nothing where it was not logged.

    A resumed run compiled more than once: each process logs its own time for it, cycle by cycle.
    """
    if ELAPSED not in record.curves:
        return {}
    each = record.finite("time/compile_seconds").tolist()
    spent = {
        "compiling": sum(value for value, _ in itertools.groupby(each)),
        "training": float(record.finite("time/cycle_seconds").sum()),
        "evaluating": float(record.finite("time/eval_seconds").sum()),
    }
    whole = record.last(ELAPSED) or 0.0
    return spent | {"saving, logging": max(0.0, whole - sum(spent.values()))}


def time_and_memory(record: Record) -> Markup:
    """Return where time went, how fast it was, and what lies in memory."""
    curves = record.curves
    shown = {n: t for n, t in _CHARTS.items() if n in curves and not _told_twice(record, n)}
    drawn = [
        charts.chart(title, [Line("", *curves[name])], full_name=name)
        for name, title in shown.items()
    ]
    return section(
        "Time and memory",
        bar(seconds(record)),
        tag("div", *drawn, class_="charts") if drawn else "",
        state(record),
    )


def _told_twice(record: Record, name: str) -> bool:
    """Tell whether this is the process's memory, which is the device's where that is the CPU."""
    device = record.curves.get("time/memory_mb")
    same = device is not None and np.array_equal(device.values, record.curves[name].values)
    return name == "time/host_memory_mb" and same


def bar(spent: dict[str, float]) -> Markup:
    """Return a bar of what time went on, with its key."""
    whole = sum(spent.values())
    if not whole:
        return Markup("")
    bars, keys = [], []
    for color, (name, value) in enumerate(spent.items()):
        bars.append(tag("div", class_=f"c{color}", style=f"flex:{value / whole:.4f}"))
        told = f"{name} {formatting.duration(value)} ({value / whole:.0%})"
        keys.append(tag("span", told, class_=f"key c{color}"))
    return Markup(tag("div", *bars, class_="bar") + tag("div", *keys, class_="legend"))


def state(record: Record) -> Markup:
    """Return a table of what the training state is made of; seeds of one program share theirs."""
    own, shared = (load_runs.state_bytes(f) for f in (record.folder, record.folder.parent))
    parts = own or shared
    if not parts:
        return Markup("")
    whole = sum(parts.values())
    large = {name: size for name, size in parts.items() if size >= _LISTED * whole}
    rows = sorted(large.items(), key=lambda part: -part[1])
    rows += [("smaller parts", whole - sum(large.values())), ("together", whole)]
    cells = [(name, f"{size / 2**20:,.2f}") for name, size in rows]
    whose = "training state" if own else "training state of all seeds"
    return html.table((f"{whose}, as saved", "MiB"), cells, "figures")
