"""Settings, versions and hardware of runs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jaxrl.config import TrainConfig, presets, serialization
from jaxrl.reports import html
from jaxrl.reports.html import Markup, section, tag
from jaxrl.reports.load_runs import Record
from jaxrl.utils.formatting import plural


def flat(config: TrainConfig) -> dict[str, str]:
    """Return the settings as text by dotted names, without the run folder."""
    values = serialization.flatten(asdict(config))
    return {name: _plain(value) for name, value in values.items() if name != "run_dir"}


def _plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)


def differing(configs: Sequence[TrainConfig]) -> dict[str, list[str]]:
    """Return the settings that differ between runs, each with its values."""
    every = [flat(config) for config in configs]
    columns = {name: [values[name] for values in every] for name in every[0]}
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def of_run(record: Record) -> Markup:
    """Return the section of a run's settings: differences from the preset, then all."""
    return section("Settings", *_tables(record.config))


def of_runs(runs: Sequence[tuple[Markup, Record]]) -> Markup:
    """Return the settings of several runs, each under its name."""
    if len(runs) == 1:
        return of_run(runs[0][1])
    folded = [tag("details", tag("summary", name), *_tables(run.config)) for name, run in runs]
    return section("Settings", *folded)


def _tables(config: TrainConfig) -> list[Markup]:
    parts = []
    if preset := presets.PRESETS.get(config.preset):
        changed = [(name, *values) for name, values in differing([preset, config]).items()]
        which = "Differences" if changed else "No differences"
        text = f"{which} from the current preset {config.preset}"
        parts.append(tag("p", text, class_="soft"))
        if changed:
            parts.append(html.table(("setting", "preset", "this run"), changed, "settings"))
    every = html.table(("setting", "value"), flat(config).items(), "settings")
    parts.append(tag("details", tag("summary", "all settings"), every))
    return parts


def provenance(record: Record) -> dict[str, str]:
    """Return versions, hardware and the state of the code as text."""
    stored = record.provenance
    git, versions, devices = (stored.get(name) for name in ("git", "versions", "devices"))
    git = git if isinstance(git, dict) else {}
    devices = list(map(str, devices)) if isinstance(devices, list) else []
    changed = list(filter(None, git.get("changed") or []))
    values = {
        "devices": ", ".join(f"{devices.count(d)} × {d}" for d in dict.fromkeys(devices)),
        "platform": stored.get("platform"),
        "python": stored.get("python"),
        **(versions if isinstance(versions, dict) else {}),
        "commit": str(git.get("commit") or "")[:12],
        "changed since": plural(len(changed), "file") if changed else "",
        "XLA flags": stored.get("xla_flags"),
    }
    return {name: str(value) for name, value in values.items() if value}


def provenances(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the distinct values of several runs."""
    every = [provenance(record) for record in records]
    names = dict.fromkeys(name for each in every for name in each)
    return {name: list(dict.fromkeys(each.get(name, "–") for each in every)) for name in names}


def versions(records: Sequence[Record]) -> Markup:
    """Return the section about versions and hardware."""
    rows = {name: "; ".join(values) for name, values in provenances(records).items()}
    return section("Versions and hardware", html.table(("", ""), rows.items()) if rows else "")
