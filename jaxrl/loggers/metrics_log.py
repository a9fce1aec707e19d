"""Read metrics.jsonl: damaged rows are dropped and counted, missing rows are counted."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, float]


class Log(NamedTuple):
    """The rows of a log, and its number of damaged lines."""

    rows: list[Row]
    damaged: int


def read(file: Path) -> Log:
    """Read a log."""
    return parse(file.read_bytes())


def parse(data: bytes) -> Log:
    """Parse the lines of a log one by one: a damaged byte costs only its own line.

    An incomplete last line is left by a crash and is not damage.
    """
    *lines, rest = data.split(b"\n")
    parsed = [_row(line) for line in lines]
    rows = [row for row in (*parsed, _row(rest)) if row is not None]
    return Log(rows, parsed.count(None))


def _row(line: bytes) -> Row | None:
    """Return a row; None for a damaged line. JSON's null is NaN."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    row = {name: math.nan if value is None else value for name, value in row.items()}
    valid = all(map(_is_number, row.values()))
    return row if valid and math.isfinite(row.get("step", math.nan)) else None


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
    present = {int(row["step"]) for row in rows}
    return [step for step in range(stride, until + 1, stride) if step not in present]


def stride(rows: Iterable[Row]) -> int | None:
    """Return the smallest number of steps between two rows; None without rows."""
    steps = sorted({0, *(int(row["step"]) for row in rows if row["step"] > 0)})
    return min((b - a for a, b in zip(steps, steps[1:], strict=False)), default=None)


def remarks(log: Log, stride: int | None, until: int, file: Path) -> list[str]:
    """Return the problems of a log."""
    problems = []
    if log.damaged:
        problems.append(f"{_count(log.damaged, 'damaged row')} of {file} dropped")
    absent = missing(log.rows, stride, until) if stride else []
    if len(absent) > log.damaged:  # a damaged row is not counted as missing
        number = _count(len(absent), "row")
        problems.append(f"{number} missing from {file}, the first at step {absent[0]:,}")
    return problems


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"
