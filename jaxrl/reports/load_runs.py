"""Read run folders: settings, logged rows, provenance, checkpoint sizes."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.config import TrainConfig, serialization, validate
from jaxrl.errors import UserError
from jaxrl.loggers import metrics_log, sinks
from jaxrl.utils import atomic_io

_LOG, _SETTINGS = "metrics.jsonl", "config.json"


class Curve(NamedTuple):
    """One metric over steps."""

    steps: np.ndarray
    values: np.ndarray


class Record(NamedTuple):
    """One run: its settings, log and provenance."""

    folder: Path
    config: TrainConfig
    rows: list[dict[str, float]]
    curves: dict[str, Curve]
    provenance: dict[str, Any]
    commands: Sequence[str]  # that it was trained by, in order; resumes add theirs
    remarks: Sequence[str] = ()  # problems of its log

    @property
    def command(self) -> str:
        """The latest command."""
        return self.commands[-1] if self.commands else ""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name

    @property
    def step(self) -> int:
        """Last logged step."""
        return _last_step(self.rows)

    @property
    def planned(self) -> int:
        """Steps of the complete run."""
        return self.config.total_iterations * self.config.steps_per_iteration

    @property
    def unit(self) -> str:
        """Unit of its steps."""
        return "gradient steps" if self.config.offline else "environment steps"

    def finite(self, metric: str) -> np.ndarray:
        """Return all finite values of a metric."""
        values = self.curves[metric].values if metric in self.curves else np.zeros(0)
        return values[np.isfinite(values)]

    def last(self, metric: str) -> float | None:
        """Return the last finite value of a metric; None if there is none."""
        values = self.finite(metric)
        return float(values[-1]) if len(values) else None

    @property
    def diverged(self) -> bool:
        """Whether it stopped because its updates stayed non-finite."""
        return bool(self.rows) and self.rows[-1].get("train/diverged") == 1.0

    def outcome(self, metric: str) -> float | None:
        """Return the last value of a metric that compares runs.

        It is NaN if the run diverged; None if the metric was never logged.
        """
        if metric not in self.curves:
            return None
        return math.nan if self.diverged else float(self.curves[metric].values[-1])


def find(paths: Iterable[Path]) -> list[Path]:
    """Return run folders: each path is one, or holds some, as the seeds of a run."""
    unique: dict[Path, Path] = {}
    for run in [run for path in paths for run in _runs(Path(path))]:
        unique.setdefault(run.resolve(), run)  # a run may be named twice
    return list(unique.values())


def _runs(path: Path) -> list[Path]:
    if not path.exists():
        raise UserError(f"'{path}' does not exist.")
    if not path.is_dir():
        raise UserError(f"'{path}' is not a run folder but a file.")
    # Several seeds that share a program also leave a log of their own above their folders.
    inner = [log.parent for log in path.glob(f"*/{_LOG}") if (log.parent / _SETTINGS).is_file()]
    if inner:
        inner.sort(key=lambda run: _by_number(run.name))
        return [run for folder in inner for run in _runs(folder)]
    if not (path / _SETTINGS).is_file():
        raise UserError(f"'{path}' is not a run folder: it has no {_SETTINGS}, and holds no runs.")
    return [path]


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts seed-10 after seed-9."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def read(folder: Path) -> Record:
    """Read a run; damaged and missing rows of its log are reported."""
    settings = folder / _SETTINGS
    if not settings.is_file():
        raise UserError(f"'{folder}' is not a run folder: it has no {_SETTINGS}.")
    atomic_io.check_folder(folder)
    config = serialization.from_json(atomic_io.read_text(settings), str(settings))
    validate.check_ranges(config, str(settings))
    file = folder / _LOG
    log = metrics_log.read(file) if file.exists() else metrics_log.Log([], 0)
    rows = log.rows
    command = folder / "command.txt"
    return Record(
        folder=folder,
        config=config,
        rows=rows,
        curves=_curves(rows) | _iteration_curves(folder / sinks.ITERATIONS, config),
        provenance=json_object(folder / "provenance.json"),
        commands=_text(command).splitlines() if command.is_file() else [],
        remarks=metrics_log.remarks(log, metrics_log.stride(rows), _last_step(rows), file),
    )


def read_all(folders: Sequence[Path]) -> tuple[list[Record], list[str]]:
    """Return the runs, and the errors of those that cannot be read; raise if all failed."""
    records, errors = [], []
    for folder in folders:
        try:
            records.append(read(folder))
        except UserError as error:
            errors.append(error)
    if not records and errors:
        raise errors[0]
    return records, list(map(str, errors))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a text file: {error}") from error


def _last_step(rows: list[dict[str, float]]) -> int:
    return int(rows[-1]["step"]) if rows else 0


def _curves(rows: list[dict[str, float]]) -> dict[str, Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "step":
                points.setdefault(name, []).append((row["step"], value))
    return {n: Curve(*np.array(p, np.float64).T) for n, p in points.items()}


def _iteration_curves(file: Path, config: TrainConfig) -> dict[str, Curve]:
    """Return the metrics of single iterations over steps, where a run has such a log."""
    if not file.is_file():
        return {}
    rows = metrics_log.read(file).rows
    curves = _curves([row | {"step": row["step"] * config.steps_per_iteration} for row in rows])
    return {sinks.iteration_name(name): curve for name, curve in curves.items()}


def json_object(file: Path) -> dict[str, Any]:
    """Return the object of a JSON file; an empty one if it is missing or damaged."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def state_bytes(folder: Path) -> dict[str, int]:
    """Return the bytes of each part of the training state in the newest checkpoint."""
    saved = [p for p in folder.glob("checkpoints/*/manifest.json") if p.parent.name.isdecimal()]
    if not saved:
        return {}
    body = json_object(max(saved, key=lambda file: int(file.parent.name))).get("body", {})
    sizes: dict[str, int] = {}
    try:
        for leaf in body.get("leaves", []):
            part = "/".join(leaf["path"].split("/")[:2])
            size = math.prod(leaf["stored_shape"]) * np.dtype(leaf["stored_dtype"]).itemsize
            sizes[part] = sizes.get(part, 0) + size
    except (AttributeError, KeyError, TypeError, ValueError):  # damaged, or of another version
        return {}
    return sizes
