"""Provenance of results: settings, command, commit and devices, stored beside the table."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.utils.formatting import plural

FILE = "provenance.json"


class Provenance(NamedTuple):
    """Command, code and devices of some runs; "" is unknown."""

    command: str = ""
    commit: str = ""
    devices: str = ""
    jax: str = ""
    note: str = ""  # added by hand

    def describe(self) -> str:
        """Return one line of Markdown."""
        parts = (
            self.command and f"`{self.command}`",
            self.commit and f"commit {self.commit}",
            self.devices,
            self.jax and f"jax {self.jax}",
            self.note,
        )
        return ", ".join(filter(None, parts))


def current(command: str) -> Provenance:
    """Return the provenance of runs of this process."""
    from jaxrl.loggers import run_dir

    process = run_dir.provenance()
    git, kinds = process["git"], [kind.partition(": ")[2] for kind in process["devices"]]
    # Untracked files, such as a new study, change no result.
    changed = [line for line in git.get("changed", []) if line and not line.startswith("??")]
    with_changes = f" and changes to {plural(len(changed), 'file')}" if changed else ""
    commit = git.get("commit", "")[:7]
    return Provenance(
        command=command,
        commit=commit and f"{commit}{with_changes}",
        devices=f"{len(kinds)} × {kinds[0]}"
        if kinds[0] != "cpu"
        else f"{os.cpu_count()} CPU cores",
        jax=process["versions"].get("jax", ""),
    )


def write(
    out: Path,
    settings: Mapping[str, Any],
    runs: Iterable[Provenance],
    *,
    smoke_test: bool = False,
) -> None:
    """Write the common settings of all variants, and each distinct provenance of their runs."""
    distinct = [run._asdict() for run in dict.fromkeys(runs) if run.describe()]
    document: dict[str, Any] = {"settings": dict(settings), "provenance": distinct}
    if smoke_test:
        document["smoke_test"] = True
    text = json.dumps(document, indent=2, default=str, ensure_ascii=False)
    (out / FILE).write_text(text + "\n", encoding="utf-8")


def read(out: Path) -> tuple[dict[str, Any], list[Provenance]] | None:
    """Return settings and provenance; None if there is no file."""
    if not (out / FILE).exists():
        return None
    document = json.loads((out / FILE).read_text())
    return document["settings"], [Provenance(**run) for run in document["provenance"]]


def is_smoke_test(out: Path) -> bool:
    """Return whether results are those of a smoke test."""
    file = out / FILE
    return file.exists() and json.loads(file.read_text()).get("smoke_test", False)
