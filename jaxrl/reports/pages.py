"""HTML pages about one run, or comparing several."""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from jaxrl.errors import UserError
from jaxrl.reports import (
    compare,
    evaluation_tables,
    load_runs,
    media,
    metric_charts,
    overview,
    resources,
    seeds,
    settings,
)
from jaxrl.reports.html import Markup, section, tag
from jaxrl.reports.load_runs import Record
from jaxrl.utils import atomic_io

NAME = "report.html"  # in a run folder
_TEMPLATE = Path(__file__).parent / "web" / "page.html"


def write(runs: Sequence[Path], out: Path) -> list[str]:
    """Write one page about all these runs; return messages for the user."""
    if not out.parent.is_dir():
        raise UserError(f"--out '{out}': the folder '{out.parent}' does not exist.")
    records, left_out = load_runs.read_all(runs)
    atomic_io.write_text(
        out, run_page(records[0]) if len(runs) == 1 else comparison_page(records, left_out)
    )
    return [*(f"left out: {reason}" for reason in left_out), *_warnings(records)]


def _warnings(records: Sequence[Record]) -> list[str]:
    return [f"warning: {remark}" for record in records for remark in record.remarks]


def run_page(record: Record) -> str:
    """Return the page of one run."""
    config = record.config
    title = ": ".join(dict.fromkeys([config.preset, config.env]))
    when = str(record.provenance.get("started", "")).replace("T", " ")[:16]
    about = [config.algo.upper(), f"seed {config.seed}", when, record.name]
    parts = [
        tag("h1", title),
        tag("p", " · ".join(filter(None, about)), class_="soft"),
        tag("code", record.command, class_="command") if record.command else "",
        _earlier_commands(record.commands[:-1]),
        *(tag("p", warning) for warning in _warnings([record])),
        overview.tiles(record) if record.rows else tag("p", "Nothing was logged yet."),
        overview.learning_curve(record),
        section("Videos and images", media.embedded(record.folder)),
        overview.learning_phases(record),
        evaluation_tables.evaluations(record),
        *metric_charts.charts_of(
            {name: [overview.line("", c)] for name, c in record.curves.items()}
        ),
        resources.time_and_memory(record),
        settings.of_run(record),
        settings.versions([record]),
    ]
    return _page(f"{title}, {record.name}", parts)


def _earlier_commands(commands: Sequence[str]) -> Markup | str:
    """Return the commands before a resume, folded."""
    lines = (tag("code", command, class_="command") for command in commands)
    summary = tag("summary", f"earlier commands ({len(commands)})")
    return tag("details", summary, *lines) if commands else ""


def comparison_page(records: Sequence[Record], left_out: Sequence[str] = ()) -> str:
    """Return the page that compares runs, with a list of those that could not be read."""
    groups = seeds.groups(records)
    number = f"{len(records)} run{'s' * (len(records) != 1)}"
    title = f"{number} of {groups[0].label}" if len(groups) == 1 else "Runs compared"
    places = {record.folder.resolve().parent for record in records}
    about = [places.pop().name] if len(places) == 1 else []
    about += [f"{number} of {len(groups)} settings"] if len(groups) > 1 else []
    parts = [
        tag("h1", title),
        tag("p", " · ".join(about), class_="soft"),
        *(tag("p", f"Left out: {reason}") for reason in left_out),
        *(tag("p", warning) for warning in _warnings(records)),
        compare.results(groups),
        compare.curves(groups),
        compare.differences(groups),
        compare.videos(groups),
        compare.evaluations(groups),
        *compare.everything(groups),
        compare.time_and_memory(groups),
        compare.settings_of(groups),
        settings.versions(records),
        compare.members(groups),
    ]
    return _page(title, parts)


def _page(title: str, parts: Sequence[str]) -> str:
    values = {"title": html.escape(title), "body": "\n".join(filter(None, parts))}
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\$(title|body)\b", lambda match: values[match[1]], template)
