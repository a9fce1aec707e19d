"""Checkpoints of the full training state that survive kills, full disks and flipped bits.

One folder per step holds the arrays (an Orbax checkpoint) and `manifest.json`: the leaves with
their digests, the metadata and the metric. It is written under a hidden name and renamed when
complete, so a folder named by a step is a finished checkpoint or was damaged later.
"""

import errno
import json
import math
import operator
import os
import shutil
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from jaxrl.checkpoint import at_exit, snapshot
from jaxrl.checkpoint import manifest as manifests
from jaxrl.checkpoint.manifest import Manifest
from jaxrl.checkpoint.snapshot import CheckpointError, CorruptCheckpointError
from jaxrl.errors import first_line

_ARRAYS = "arrays"
_UNFINISHED = (".saving-", ".deleting-")  # names of work in progress; never read
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Restored(NamedTuple):
    """A checkpoint that was read, and a text for each newer one that could not be."""

    step: int
    state: Any
    metadata: dict
    warnings: list[str]


class Found(NamedTuple):
    """A checkpoint as it lies on disk."""

    step: int
    leaves: list[snapshot.Leaf]
    arrays: list[np.ndarray]
    metadata: dict
    warnings: list[str]


Check = Callable[[Manifest], None]


class CheckpointManager:
    """The full training state on disk, one folder per step under `directory`.

    One process at a time may save into a directory; any number may restore from it. Nothing is
    created, moved or removed before the first save, which also clears leftovers of killed runs.
    Close it, or use it as a context, to hear of a save that failed.
    """

    def __init__(self, directory: Path, *, keep_last: int = 3, only_read: bool = False):
        if keep_last < 1:
            raise CheckpointError(f"keep_last must be at least 1, not {keep_last}")
        self.directory = _usable(Path(directory), os.R_OK | (0 if only_read else os.W_OK))
        self._keep_last = keep_last
        # Orbax's own async save is not used: digests and the manifest must be written with the
        # arrays, off the training loop, and its failures can hang the process at exit.
        self._worker = futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: tuple[int, futures.Future[None]] | None = None
        self._damaged: set[int] = set()
        self._cleaned = False
        self._closed = False
        at_exit.finish(self, CheckpointManager.wait)

    def save(
        self,
        step: int,
        state: Any,
        metadata: dict,
        *,
        metric: float | None = None,
        block: bool = False,
    ) -> None:
        """Copy the state to the host and write it in the background.

        Waits for the save before it, so that at most one copy is held. A step that is already
        there, whole and with the same state, is left as it is.
        """
        if self._closed:
            raise CheckpointError(f"the checkpoints in {self.directory} are closed")
        step = operator.index(step)
        if step < 0:
            raise CheckpointError(f"a checkpoint step must not be negative: {step}")
        snapshot.check_json(metadata, "metadata")
        self.wait()
        taken = snapshot.take(state)
        score = None if metric is None or not math.isfinite(metric) else float(metric)
        manifest = Manifest(json.loads(json.dumps(metadata)), score, [])
        self._pending = step, self._worker.submit(self._write, step, taken, manifest)
        if block:
            self.wait()

    def restore(
        self,
        target: Any,
        step: int | None = None,
        check_metadata: Callable[[dict], None] = lambda metadata: None,
    ) -> Restored:
        """Read the newest whole checkpoint, or that of one step, into the form of a target.

        Args:
          target: pytree of arrays or of jax.ShapeDtypeStruct; its shardings are honoured.
          step: the one to read; the newest whole one when not given.
          check_metadata: raises DamagedError for metadata that was not written by this program.
        """

        def check(manifest: Manifest) -> None:
            check_metadata(manifest.metadata)
            snapshot.check_target(manifest.leaves, target)

        found = self.read(step, check)
        state = snapshot.rebuild(found.leaves, found.arrays, target)
        return Restored(found.step, state, found.metadata, found.warnings)

    def read(self, step: int | None = None, check: Check = lambda manifest: None) -> Found:
        """Read the newest whole checkpoint, or that of one step, as named arrays.

        `check` is given its manifest before its arrays are read, and may raise.
        """
        self.wait()
        present = self.steps()
        wanted = present[::-1] if step is None else [step]
        if not present or wanted[0] not in present:
            which = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            there = f"; there are steps {', '.join(map(str, present))}" if present else ""
            raise CheckpointError(f"{which} in {self.directory}{there}")
        warnings = []
        for candidate in wanted:
            folder = self.directory / str(candidate)
            try:
                manifest = manifests.read(folder)
                check(manifest)
                arrays = snapshot.read_arrays(folder / _ARRAYS, manifest.leaves)
            except CorruptCheckpointError as error:
                self._damaged.add(candidate)
                warnings.append(f"checkpoint {folder} is damaged and was skipped: {error}")
                continue
            return Found(candidate, manifest.leaves, arrays, manifest.metadata, warnings)
        raise CheckpointError(
            f"no whole checkpoint in {self.directory}; start a new run or bring back a copy:\n"
            + "\n".join(warnings)
        )

    def steps(self) -> list[int]:
        """Return the steps that have a folder, oldest first, whole or not."""
        if not self.directory.is_dir():
            return []
        names = [entry.name for entry in self.directory.iterdir() if entry.is_dir()]
        return sorted(int(n) for n in names if n.isdecimal() and n.isascii() and str(int(n)) == n)

    def wait(self) -> None:
        """Return when the save in progress is on disk; raise CheckpointError if it failed."""
        if self._pending is None:
            return
        step, job = self._pending
        futures.wait([job])
        self._pending = None
        error = job.exception()
        if error is not None:
            raise CheckpointError(_explain(step, self.directory, error)) from error

    def close(self) -> None:
        """Finish the save in progress; raise CheckpointError if it failed."""
        self._closed = True
        try:
            self.wait()
        finally:
            self._worker.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except CheckpointError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # the error of the run is the one to show

    def _write(self, step: int, taken: snapshot.Snapshot, manifest: Manifest) -> None:
        """Commit one step, then remove those no longer wanted. Runs in the worker thread."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._cleaned:
            self._remove_unfinished()
            self._cleaned = True
        manifest = manifest._replace(leaves=snapshot.with_digests(taken))
        final = self.directory / str(step)
        if final.exists() and self._holds(final, manifest):
            return
        draft = self.directory / f".saving-{step}"
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            snapshot.write_arrays(draft / _ARRAYS, taken.arrays)
            manifests.write(draft, manifest)
            if final.exists():
                _move_aside(final, "damaged" if step in self._damaged else "replaced")
            draft.rename(final)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)  # a full disk must get its space back
            raise
        manifests.sync(self.directory)
        self._damaged.discard(step)
        self._prune(step)

    def _holds(self, folder: Path, manifest: Manifest) -> bool:
        """Say whether a folder is whole and has the same state; note it when it is damaged."""
        try:
            leaves = manifests.read(folder).leaves
            snapshot.read_arrays(folder / _ARRAYS, leaves)
        except CorruptCheckpointError:
            self._damaged.add(int(folder.name))
            return False
        return leaves == manifest.leaves

    def _prune(self, just_saved: int) -> None:
        """Remove all but the newest steps and the best one; damaged ones do not count and stay."""
        metrics = {}
        for step in set(self.steps()) - self._damaged:
            try:
                metrics[step] = manifests.read(self.directory / str(step)).metric
            except CorruptCheckpointError:
                continue
        keep = {just_saved, *sorted(metrics)[-self._keep_last :]}
        scored = [(metric, step) for step, metric in metrics.items() if metric is not None]
        if scored:
            keep.add(max(scored)[1])
        for step in metrics.keys() - keep:
            # Renamed first: a kill in the middle must not leave half a step to be read.
            doomed = self.directory / f".deleting-{step}"
            (self.directory / str(step)).rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def _remove_unfinished(self) -> None:
        for entry in self.directory.iterdir():
            if entry.name.startswith(_UNFINISHED):
                shutil.rmtree(entry, ignore_errors=True)


def _usable(directory: Path, mode: int) -> Path:
    """Return the absolute path if it is, or could become, a directory to be used like this."""
    path = nearest = directory.expanduser().resolve()
    while not os.path.exists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise CheckpointError(f"cannot save checkpoints in {path}: {nearest} is a file")
    if not os.access(nearest, mode | os.X_OK):
        work, able = ("save", "writable") if mode & os.W_OK else ("read", "readable")
        raise CheckpointError(
            f"cannot {work} checkpoints in {path}: {nearest} is not {able}; "
            "change its permissions or choose another directory"
        )
    return path


def _move_aside(folder: Path, why: str) -> None:
    """Rename a folder that is in the way; it is kept for a person to look at."""
    n = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{n}")).exists():
        n += 1
    folder.rename(aside)


def _explain(step: int, directory: Path, error: BaseException) -> str:
    texts = [os.strerror(code) for code in _DISK_FULL]
    full = next((text for text in texts if text in str(error)), None)
    fix = "free some disk space" if full else "check the disk and its permissions"
    return (
        f"the checkpoint of step {step} could not be written to {directory}: "
        f"{full or first_line(error)}; {fix}. Earlier checkpoints are intact"
    )
