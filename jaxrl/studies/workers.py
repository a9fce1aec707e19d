"""One study run by several processes, on any hosts that share a disk.

A process takes a program by a lease, a file with a heartbeat. The lease of a dead process ends, and
another one continues its program from the last checkpoint. Each process appends results to a file
of its own: appending to one file from several hosts is not safe everywhere. Other hosts may see the
results later than the end of the lease, so a file beside the lease says that they exist.
"""

import contextlib
import hashlib
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from jaxrl.config import TrainConfig, serialization
from jaxrl.errors import UserError
from jaxrl.loggers import lock_file
from jaxrl.studies import provenance
from jaxrl.studies import results as records
from jaxrl.studies.results import Record
from jaxrl.studies.study import Cell, Study
from jaxrl.utils import atomic_io
from jaxrl.utils.formatting import plural

_DONE = "done"  # names the file of the results
_WAIT = 5.0  # seconds before looking again, while others train what is left


def run(
    chosen: Study, cells: dict[Cell, TrainConfig], out: Path, at_once: int, command: str
) -> None:
    """Train programs that nobody else trains, until all cells are finished."""
    made, waiting = provenance.current(command), False
    own = f"runs-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}.jsonl"
    parts = divided(cells, at_once)
    while missing := _missing(out, cells, parts):
        if any(_train(chosen, cells, part, out, own, made) for part in missing):
            waiting = False
            continue
        if not waiting:
            print(
                f"waiting for {plural(len(missing), 'program')} that other processes train",
                flush=True,
            )
        waiting = True
        time.sleep(_WAIT)


def divided(cells: dict[Cell, TrainConfig], at_once: int) -> list[list[Cell]]:
    """Return the cells of each program, the same for all processes of a study."""
    from jaxrl.training import population

    names = list(cells)
    groups = population.groups(list(cells.values()))
    chunks = [each[i : i + at_once] for each in groups for i in range(0, len(each), at_once)]
    return [[names[place] for place in chunk] for chunk in chunks]


def _missing(
    out: Path, cells: dict[Cell, TrainConfig], parts: list[list[Cell]]
) -> list[list[Cell]]:
    done = records.finished_runs(out, cells)
    return [part for part in parts if any(cell not in done for cell in part)]


def _train(
    chosen: Study,
    cells: dict[Cell, TrainConfig],
    part: list[Cell],
    out: Path,
    own: str,
    made: provenance.Provenance,
) -> bool:
    """Train one program, if no other process does; tell whether it was trained."""
    from jaxrl.studies import training

    with _lease(out, [cells[cell] for cell in part]) as lease:
        done = records.finished_runs(out, cells)
        left = [cell for cell in part if cell not in done]
        if not lease or not left or _is_done(lease, out):
            return False
        print(
            f"{plural(len(left), 'run')}: {', '.join(dict.fromkeys(name for name, _ in left))}",
            flush=True,
        )
        started = training.start([cells[cell] for cell in left])
        curves = training.train(started, out / "runs", chosen.check_metric)
        for cell, curve in zip(left, curves, strict=True):
            records.append(out / own, Record(*cell, *curve, made), cells[cell])
        atomic_io.write_text(lease / _DONE, own)
    return True


def _is_done(lease: Path, out: Path) -> bool:
    """Tell whether another process has written results, which may not be visible here yet."""
    try:
        name = atomic_io.read_text(lease / _DONE)
    except (OSError, UserError):
        return False
    return (out / name).exists()  # not if somebody has removed them


@contextlib.contextmanager
def _lease(out: Path, configs: list[TrainConfig]) -> Iterator[Path | None]:
    """Hold the lease of a program; yields its folder, None if another process holds it."""
    named = "\n".join(map(serialization.to_json, configs)).encode()
    folder = out / "leases" / hashlib.sha256(named).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_file.HeartbeatLock(folder)
    try:
        lock.acquire()
    except UserError:
        yield None
        return
    try:
        yield folder
    finally:
        lock.release()
