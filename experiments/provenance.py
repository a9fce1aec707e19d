"""Where results come from: settings, command, commit, devices; kept beside the table."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FILE = "origin.json"


class Origin(NamedTuple):
    """What made some runs; "" is not known."""

    command: str = ""
    commit: str = ""
    devices: str = ""
    jax: str = ""
    note: str = ""  # for people to add

    def told(self) -> str:
        """Return it as one line in Markdown."""
        parts = (
            self.command and f"`{self.command}`",
            self.commit and f"commit {self.commit}",
            self.devices,
            self.jax and f"jax {self.jax}",
            self.note,
        )
        return ", ".join(filter(None, parts))


def here(command: str) -> Origin:
    """Return what makes runs in this process."""
    from jaxrl.loggers import run_dir

    found = run_dir.provenance()
    git, kinds = found["git"], [kind.partition(": ")[2] for kind in found["devices"]]
    # Files that git does not know, such as a study that was just written, change no result.
    changed = [line for line in git.get("changed", []) if line and not line.startswith("??")]
    with_changes = f" and changes to {len(changed)} files" if changed else ""
    commit = git.get("commit", "")[:7]
    return Origin(
        command=command,
        commit=commit and f"{commit}{with_changes}",
        devices=f"{len(kinds)} × {kinds[0]}"
        if kinds[0] != "cpu"
        else f"{os.cpu_count()} CPU cores",
        jax=found["versions"].get("jax", ""),
    )


def write(
    out: Path, settings: Mapping[str, Any], origins: Iterable[Origin], *, shrunk: bool = False
) -> None:
    """Keep what all variants had in common, and every origin once."""
    known = [origin._asdict() for origin in dict.fromkeys(origins) if origin.told()]
    kept = {"settings": dict(settings), "origins": known} | ({"shrunk": True} if shrunk else {})
    text = json.dumps(kept, indent=2, default=str, ensure_ascii=False)
    (out / FILE).write_text(text + "\n", encoding="utf-8")


def read(out: Path) -> tuple[dict[str, Any], list[Origin]] | None:
    """Return what `write` wrote, if it has."""
    if not (out / FILE).exists():
        return None
    found = json.loads((out / FILE).read_text())
    return found["settings"], [Origin(**origin) for origin in found["origins"]]


def was_shrunk(out: Path) -> bool:
    """Tell whether `write` was told so."""
    file = out / FILE
    return file.exists() and json.loads(file.read_text()).get("shrunk", False)
