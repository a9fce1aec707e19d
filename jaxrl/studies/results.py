"""Results of a study: one line of JSON per finished run, and a table of all evaluations."""

import contextlib
import csv
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.config import TrainConfig, serialization
from jaxrl.studies.provenance import Provenance
from jaxrl.studies.study import Cell


class Record(NamedTuple):
    """One run."""

    variant: str
    seed: int
    steps: list[int]  # of its evaluations
    metrics: dict[str, list[float]]  # by name, one value per evaluation
    provenance: Provenance = Provenance()  # not in the table


def append(path: Path, record: Record, config: TrainConfig) -> None:
    """Append a finished run."""
    text = json.dumps(record._asdict() | {"config": serialization.to_json(config)})
    # A full disk may have truncated the last line.
    truncated = path.exists() and not path.read_text(encoding="utf-8").endswith("\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * truncated + text + "\n")


def finished_runs(folder: Path, cells: dict[Cell, TrainConfig]) -> dict[Cell, Record]:
    """Return the finished runs of a folder whose settings are still those of their cells."""
    finished = {}
    for row in (row for path in sorted(folder.glob("runs*.jsonl")) for row in _rows(path)):
        cell = row["variant"], row["seed"]
        if cell in cells and row.pop("config") == serialization.to_json(cells[cell]):
            row["provenance"] = Provenance(*row.get("provenance", ()))
            finished[cell] = Record(**row)
    return finished


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read all complete lines."""
    rows = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def write_table(records: list[Record], path: Path) -> None:
    """Write a tidy table: one line per evaluation."""
    names = list(dict.fromkeys(name for record in records for name in record.metrics))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "seed", "step", *names])
        for record in records:
            for i, step in enumerate(record.steps):
                values = [record.metrics[n][i] if n in record.metrics else "" for n in names]
                writer.writerow([record.variant, record.seed, step, *values])


def read_table(path: Path) -> list[Record]:
    """Read the table of `write_table`."""
    records: dict[Cell, Record] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            cell = row.pop("variant"), int(row.pop("seed"))
            record = records.setdefault(cell, Record(*cell, [], {name: [] for name in row}))
            record.steps.append(int(row["step"]))
            for name, value in row.items():
                record.metrics[name].append(float(value) if value else math.nan)
    for record in records.values():
        del record.metrics["step"]
    return list(records.values())
