"""Run a study: `jaxrl study STUDY` writes a table, plots and results.md.

Finished runs are stored and not repeated; unfinished ones are saved when they are interrupted. The
same command continues a study.
"""

import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.studies import provenance, study, workers
from jaxrl.studies import results as records
from jaxrl.studies.results import Record
from jaxrl.studies.study import Cell, Study
from jaxrl.utils import command_line
from jaxrl.utils.formatting import plural

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class StudyArgs:
    """Train the variants of a study over seeds, and write a table, plots and results.md."""

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """Python file, or its name in studies/."""
    smoke: bool = False
    """Smoke test with two seeds."""
    out: Path | None = None
    """Folder; results/STUDY beside studies/ if not given."""
    at_once: int = 64
    """Maximum members of a program."""
    shared: Path | None = None
    """Folder on a shared disk: any number of such commands work off one study together."""
    set: Annotated[tuple[tuple[str, str], ...], tyro.conf.UseAppendAction] = ()
    """A setting for all variants, by its dotted name: --set motion.clips motions."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    typed = shlex.join(["jaxrl", "study", *words])
    return study.status(
        lambda: _command(command_line.parse(StudyArgs, words, "studies.run"), typed)
    )


def _command(args: StudyArgs, typed: str) -> None:
    study.at_least_one(at_once=args.at_once)
    settings = {name: _value(text) for name, text in args.set}
    chosen = study.load(args.study)
    chosen = replace(chosen, settings={**chosen.settings, **settings})
    if args.smoke:
        chosen = chosen.smoke_test()
    if args.shared and args.out:
        raise UserError("--shared and --out: give one of them; each names the folder of results.")
    out = study.folder(args.study, args.shared or args.out, smoke=args.smoke)
    name, shared = Path(args.study).stem, args.shared is not None
    execute(name, chosen, out, args.at_once, typed, shared=shared)


def _value(text: str) -> Any:
    """Parse a value as JSON, or else return it as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def execute(
    name: str,
    chosen: Study,
    out: Path,
    at_once: int = 64,
    command: str = "",
    *,
    shared: bool = False,
) -> None:
    """Run the cells that are not finished, then write the report."""
    from jaxrl.studies import report  # and matplotlib

    cells = chosen.cells()
    done = records.finished_runs(out, cells)
    missing = {cell: config for cell, config in cells.items() if cell not in done}
    if done:
        print(f"{len(done)} of {len(cells)} runs are finished already")
    if missing:
        if shared:
            workers.run(chosen, cells, out, at_once, command)
        else:
            _run(chosen, missing, out / "runs.jsonl", at_once, command)
        done = records.finished_runs(out, cells)
    runs = [done[cell] for cell in cells]
    chosen.check_metric({name for record in runs for name in record.metrics})
    records.write_table(runs, out / "results.csv")
    sources = [record.provenance for record in runs]
    provenance.write(out, chosen.settings, sources, smoke_test=chosen.is_smoke_test)
    report.write(name, chosen, runs, out)


def results(name: str) -> tuple[Study, list[Record]]:
    """Return a study and its stored results.

    Without stored results, or with JAXRL_SMOKE set, its smoke test is run instead.
    """
    chosen, table = study.load(name), study.results_folder(name) / "results.csv"
    if table.exists() and not os.environ.get("JAXRL_SMOKE"):
        return chosen, records.read_table(table)
    print("This is a smoke test, not a result: nothing was trained for long.")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        with contextlib.redirect_stdout(io.StringIO()):
            execute(name, chosen.smoke_test(), out)
        return chosen.smoke_test(), records.read_table(out / "results.csv")


def _run(
    chosen: Study, cells: dict[Cell, TrainConfig], path: Path, at_once: int, command: str
) -> None:
    """Train all cells, as many per program as possible, and store the results of each program."""
    from jaxrl.studies import training
    from jaxrl.training import population

    made = provenance.current(command)
    names, configs = list(cells), list(cells.values())
    groups = population.groups(configs)
    parts = [each[i : i + at_once] for each in groups for i in range(0, len(each), at_once)]

    def start(part: list[int]) -> training.Started:
        return training.start([configs[i] for i in part])

    # With cores to spare, later programs are compiled while earlier ones are trained.
    ahead = max(1, (os.cpu_count() or 1) // 4)
    for number, (part, started) in enumerate(_prefetch(parts, start, ahead), 1):
        variants = ", ".join(dict.fromkeys(names[i][0] for i in part))
        many = plural(len(part), "run")
        print(f"program {number} of {len(parts)}, {many}: {variants}", flush=True)
        curves = training.train(started, path.parent / "runs", chosen.check_metric)
        for i, curve in zip(part, curves, strict=True):
            records.append(path, Record(*names[i], *curve, made), configs[i])


def _prefetch(
    items: Iterable[Item], make: Callable[[Item], Made], ahead: int
) -> Iterator[tuple[Item, Made]]:
    """Yield (item, make(item)); `make` is called `ahead` items before its result is yielded."""
    pending: deque[tuple[Item, Made]] = deque()
    for item in items:
        pending.append((item, make(item)))
        if len(pending) > ahead:
            yield pending.popleft()
    while pending:
        yield pending.popleft()


if __name__ == "__main__":
    sys.exit(main())
