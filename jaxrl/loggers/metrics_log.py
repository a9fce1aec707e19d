"""Reading metrics.jsonl: damaged rows are dropped and counted, missing ones are counted too."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, float]


class Log(NamedTuple):
    """The rows of a log, and how many lines are none."""

    rows: list[Row]
    damaged: int


def read(file: Path) -> Log:
    """Read a log."""
    return parse(file.read_bytes())


def parse(data: bytes) -> Log:
    """Read the lines of a log one by one: a damaged byte costs its own line alone.

    A last line without its end is what a crash leaves; it is no damage.
    """
    *lines, rest = data.split(b"\n")
    found = [_row(line) for line in lines]
    rows = [row for row in (*found, _row(rest)) if row is not None]
    return Log(rows, found.count(None))


def _row(line: bytes) -> Row | None:
    """Return a point of a log; None where the line is none. JSON's null is NaN."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    row = {name: math.nan if value is None else value for name, value in row.items()}
    fine = all(map(_is_number, row.values()))
    return row if fine and math.isfinite(row.get("step", math.nan)) else None


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float):
        return False
    try:
        float(value)
    except OverflowError:  # an integer of hundreds of digits
        return False
    return True


def missing(rows: Iterable[Row], stride: int, until: int) -> list[int]:
    """Return the steps, one every `stride` up to `until`, that have no row."""
    there = {int(row["step"]) for row in rows}
    return [step for step in range(stride, until + 1, stride) if step not in there]


def stride(rows: Iterable[Row]) -> int | None:
    """Return the steps between two rows, as most runs have them; None where there is no row."""
    steps = sorted({0, *(int(row["step"]) for row in rows if row["step"] > 0)})
    return min((b - a for a, b in zip(steps, steps[1:], strict=False)), default=None)


def remarks(log: Log, stride: int | None, until: int, file: Path) -> list[str]:
    """Say what is wrong with a log."""
    found = []
    if log.damaged:
        found.append(f"{_number(log.damaged, 'damaged row')} of {file} dropped")
    lacking = missing(log.rows, stride, until) if stride else []
    if len(lacking) > log.damaged:  # a damaged row is not missing as well
        number = _number(len(lacking), "row")
        found.append(f"{number} missing from {file}, the first at step {lacking[0]:,}")
    return found


def _number(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"
