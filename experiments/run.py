"""Run a study: `python -m experiments.run STUDY` writes a table, pictures and results.md.

What is finished is kept as it comes, and not run again: an interrupted study goes on by the same
command.
"""

import argparse
import csv
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from experiments import report
from experiments.study import Study
from jaxrl.config import TrainConfig
from jaxrl.errors import UserError, exit_status, nearest

HERE = Path(__file__).parent
Cell = tuple[str, int]  # variant, seed


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("study", help="name of a file in experiments/studies")
    parser.add_argument("--tiny", action="store_true", help="two seeds of next to nothing")
    parser.add_argument("--out", type=Path, help="folder; experiments/results/STUDY if not given")
    parser.add_argument("--at-once", type=int, default=64, help="most members of one program")
    command = parser.parse_args(arguments)
    return exit_status(lambda: execute(command))


def execute(command: argparse.Namespace) -> None:
    """Run what is not finished yet, then write the report."""
    study = load(command.study)
    out = command.out or HERE / "results" / command.study
    out.mkdir(parents=True, exist_ok=True)
    cells = study.cells(tiny=command.tiny)
    done = finished(out / "runs.jsonl", cells)
    missing = {cell: config for cell, config in cells.items() if cell not in done}
    if done:
        print(f"{len(done)} of {len(cells)} runs are finished already")
    if missing:
        _run(missing, out / "runs.jsonl", command.at_once)
    rows = [row for row in _rows(out / "runs.jsonl") if (row["variant"], row["seed"]) in cells]
    _table(rows, out / "results.csv")
    report.write(command.study, study, rows, out)
    print(f"written to {out / 'results.md'}")


def load(name: str) -> Study:
    """Return the study of a file in experiments/studies."""
    known = sorted(p.stem for p in (HERE / "studies").glob("*.py") if p.stem != "__init__")
    if name not in known:
        hint = nearest(name, known)
        raise UserError(f"Unknown study '{name}'.{hint} Known: {', '.join(known)}.")
    return importlib.import_module(f"experiments.studies.{name}").STUDY


def finished(path: Path, cells: dict[Cell, TrainConfig]) -> set[Cell]:
    """Return the cells whose runs are kept with the settings that they have now."""
    from jaxrl import config_json

    same = {(variant, seed): config_json.to_json(c) for (variant, seed), c in cells.items()}
    found = ((row["variant"], row["seed"], row["config"]) for row in _rows(path))
    return {(name, seed) for name, seed, config in found if same.get((name, seed)) == config}


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read what is kept; of a run that was done again, the last."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return list({(row["variant"], row["seed"]): row for row in rows}.values())


def _run(cells: dict[Cell, TrainConfig], path: Path, at_once: int) -> None:
    """Train all cells, as many in one program as fit together, and keep each group's results."""
    from jaxrl.runtime import population, program

    program.use_compilation_cache()
    names, configs = list(cells), list(cells.values())
    parts = [
        group[i : i + at_once]
        for group in population.groups(configs)
        for i in range(0, len(group), at_once)
    ]
    points = sum(configs[part[0]].epochs for part in parts)
    with report.progress(points) as bar:
        for part in parts:
            bar.say(f"{len(part)} runs: {', '.join(dict.fromkeys(names[i][0] for i in part))}")
            began = time.monotonic()
            curve = population.train([configs[i] for i in part], lambda point: bar.advance())
            seconds = time.monotonic() - began
            with path.open("a") as file:
                for place, i in enumerate(part):
                    file.write(json.dumps(_row(names[i], configs[i], curve, place, seconds)) + "\n")


def _row(cell: Cell, config: TrainConfig, curve: list, place: int, seconds: float) -> dict:
    from jaxrl import config_json

    return {
        "variant": cell[0],
        "seed": cell[1],
        "steps": [point.step for point in curve],
        "returns": [float(point.returns[place]) for point in curve],
        "seconds": round(seconds, 2),  # of the whole program, which it shares with others
        "config": config_json.to_json(config),
    }


def _table(rows: list[dict[str, Any]], path: Path) -> None:
    """Write a tidy table: one line for every evaluation."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "seed", "step", "return"])
        for row in rows:
            for step, value in zip(row["steps"], row["returns"], strict=True):
                writer.writerow([row["variant"], row["seed"], step, value])


if __name__ == "__main__":
    sys.exit(main())
