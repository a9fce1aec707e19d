"""Learning curves of training in processes of their own, read from their run folders."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir
from jaxrl.loggers.sinks import read_jsonl
from jaxrl.utils import stats

_TOLERANCE = 1.02  # an evaluation a little later than a number of steps counts as at it


class Curve(NamedTuple):
    """Evaluations of all seeds of a run."""

    steps: list[int]
    seconds: list[float]  # since the process began
    returns: list[list[float]]  # [evaluations][seeds]
    commit: str = ""


def train(words: list[str], folder: Path, seeds: int, limit: float | None = None) -> Curve:
    """Train with these words of the command line, or continue, or read what is finished.

    After `limit` seconds the process is ended, and the run counts as finished.
    """
    command = ["-m", "jaxrl.train", *words, "--num-seeds", str(seeds), "--run-dir", str(folder)]
    # Written when a run begins, and not again when it is resumed.
    path, begun = folder.with_name(f"{folder.name}.json"), folder / "provenance.json"
    record = _record(path, begun, {"command": command, "limit": limit})
    if "commit" not in record:
        _run([sys.executable, *command, "--resume", "auto", "--quiet"], limit)
        if not begun.exists():
            raise UserError(f"{folder}: {limit} s were too short to begin: raise --limit.")
        record["commit"] = report.commit()
        path.write_text(json.dumps(record))
    return read(folder, begun.stat().st_mtime - record["began"])._replace(commit=record["commit"])


def _record(path: Path, begun: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a run, or what has just begun; refuse a run of another command."""
    record = json.loads(path.read_text()) if path.exists() else {}
    if begun.exists():
        if asked != {name: record.get(name) for name in asked}:
            raise UserError(f"{begun.parent} is of another command: move it and {path.name} away.")
        return record
    record = asked | {"began": time.time()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return record


def _run(command: list[str], limit: float | None) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return
    if run.returncode:
        output = run.stdout[-2000:] + run.stderr[-2000:]
        raise RuntimeError(f"{' '.join(command)} failed:\n{output}")


def read(folder: Path, before: float = 0.0) -> Curve:
    """Read the evaluations of a run, or of all seeds in it; `before`: seconds of its start."""
    members = run_dir.member_names(folder)
    logs = [
        [row for row in read_jsonl(place / "metrics.jsonl") if "eval/mean_reward" in row]
        for place in ([folder / name for name in members] or [folder])
    ]
    rows = list(zip(*logs, strict=False))  # an interrupted run may have written some of a row
    return Curve(
        [int(row[0]["step"]) for row in rows],
        [round(before + row[0]["time/time_elapsed"], 1) for row in rows],
        [[float(one["eval/mean_reward"]) for one in row] for row in rows],
    )


def read_results(path: Path) -> dict[str, Curve]:
    """Read the curves of earlier results, if there are any."""
    found = json.loads(path.read_text())["curves"] if path.exists() else {}
    return {name: Curve(**curve) for name, curve in found.items()}


def to_json(curves: dict[str, Curve]) -> dict[str, dict]:
    """Return curves as `read_results` reads them."""
    return {name: curve._asdict() for name, curve in curves.items()}


def at(curve: Curve, steps: float) -> list[float] | None:
    """Return the returns of the seeds at a number of steps; None where they were not evaluated."""
    until = [number for number in curve.steps if number <= steps * _TOLERANCE]
    ended_before = not until or curve.steps[-1] * _TOLERANCE < steps
    return None if ended_before else curve.returns[len(until) - 1]


def seconds_to(curve: Curve, target: float) -> float | None:
    """Return the seconds until the mean of the seeds reached a return; None where it never did."""
    means = np.mean(curve.returns, axis=1)
    reached = [second for second, mean in zip(curve.seconds, means, strict=True) if mean >= target]
    return reached[0] if reached else None


def aggregate(returns: list[float]) -> float:
    """Return the interquartile mean of seeds."""
    return float(stats.interquartile_mean(np.asarray(returns)))
