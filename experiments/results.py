"""What runs of a study left: kept line by line as they end, and as a table to read and share."""

import contextlib
import csv
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from experiments.provenance import Origin
from experiments.study import Cell
from jaxrl.config import TrainConfig, serialization


class Record(NamedTuple):
    """One run."""

    variant: str
    seed: int
    steps: list[int]  # of its evaluations
    figures: dict[str, list[float]]  # what each of them gave, by name
    origin: Origin = Origin()  # not in the table


def keep(path: Path, record: Record, config: TrainConfig) -> None:
    """Add a run."""
    text = json.dumps(record._asdict() | {"config": serialization.to_json(config)})
    cut = path.exists() and not path.read_text(encoding="utf-8").endswith(
        "\n"
    )  # the last line, by a full disk
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * cut + text + "\n")


def kept(path: Path, cells: dict[Cell, TrainConfig]) -> dict[Cell, Record]:
    """Return the runs that were made with the settings that the cells have now."""
    found = {}
    for row in _rows(path):
        cell = row["variant"], row["seed"]
        if cell in cells and row.pop("config") == serialization.to_json(cells[cell]):
            row["origin"] = Origin(*row.get("origin", ()))
            found[cell] = Record(**row)
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read all lines but one that was interrupted."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def write_table(records: list[Record], path: Path) -> None:
    """Write a tidy table: one line for every evaluation."""
    names = list(dict.fromkeys(name for record in records for name in record.figures))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "seed", "step", *names])
        for record in records:
            for i, step in enumerate(record.steps):
                given = [record.figures[n][i] if n in record.figures else "" for n in names]
                writer.writerow([record.variant, record.seed, step, *given])


def read_table(path: Path) -> list[Record]:
    """Read what `write_table` wrote."""
    found: dict[Cell, Record] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            cell = row.pop("variant"), int(row.pop("seed"))
            record = found.setdefault(cell, Record(*cell, [], {name: [] for name in row}))
            record.steps.append(int(row["step"]))
            for name, value in row.items():
                record.figures[name].append(float(value) if value else math.nan)
    for record in found.values():
        del record.figures["step"]
    return list(found.values())
