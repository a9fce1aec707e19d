"""Checkpoints of the full training state that survive kills, full disks and flipped bits.

One folder per step holds the arrays (an Orbax checkpoint) and `manifest.json`: the leaves with
their digests, the metadata and the metric. It is written under a hidden name and renamed when
complete, so a folder named by a step is a finished checkpoint or was damaged later.

Of several processes, each writes its rows of the arrays that are split over them, to a folder
`process-N` in that of the step; process 0 renames it when all have finished.
"""

import contextlib
import errno
import hashlib
import json
import math
import operator
import os
import re
import shutil
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from jaxrl.checkpoint import array_io, snapshot
from jaxrl.checkpoint.snapshot import CheckpointError, CorruptCheckpointError, SaveError
from jaxrl.errors import UserError, first_line
from jaxrl.types import PyTree
from jaxrl.utils import atomic_io, processes

_ARRAYS = "arrays"
_MANIFEST = "manifest.json"
_FORMAT = 1
_UNFINISHED = (".saving-", ".deleting-")  # names of work in progress; never read
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Manifest(NamedTuple):
    """The leaves of a checkpoint with their digests, its metadata and its metric."""

    metadata: dict
    metric: float | None
    leaves: list[snapshot.Leaf]
    parts: list[str] = []  # digests of the manifests of processes 1, 2, ...


class Restored(NamedTuple):
    """A restored checkpoint, with one warning for each newer one that is damaged."""

    step: int
    state: PyTree
    metadata: dict
    warnings: list[str]


class StoredCheckpoint(NamedTuple):
    """A checkpoint as named arrays, with one warning for each newer one that is damaged."""

    step: int
    leaves: list[snapshot.Leaf]
    arrays: list[np.ndarray]
    metadata: dict
    warnings: list[str]


Check = Callable[[Manifest], None]


class CheckpointManager:
    """The full training state on disk, one folder per step under `directory`.

    One run at a time may save into a directory; any number may restore from it. Nothing is
    created, moved or removed before the first save, which also clears leftovers of killed runs.
    Close it, or use it as a context manager, so that a failed save raises.
    """

    def __init__(self, directory: Path, *, keep: int | Literal["all"] = 3, read_only: bool = False):
        if keep != "all" and keep < 1:
            raise CheckpointError(f"keep must be at least 1, or all, not {keep}")
        self.directory = _checked_path(Path(directory), os.R_OK | (0 if read_only else os.W_OK))
        self._keep: int | Literal["all"] = keep
        # Orbax's own async save is not used: digests and the manifest must be written with the
        # arrays, off the training loop, and its failures can hang the process at exit.
        self._worker = futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: tuple[int, futures.Future[None]] | None = None
        self._together: processes.Rendezvous | None = None  # of the saves
        self._damaged: set[int] = set()
        self._cleaned = False
        self._closed = False
        _wait_before_exit(self)

    def save(
        self,
        step: int,
        state: PyTree,
        metadata: dict,
        *,
        metric: float | None = None,
        block: bool = False,
    ) -> None:
        """Copy the state to the CPU and write it in the background.

        Waits for the previous save, so that at most one copy is in memory. A step that is already
        on disk, intact and with the same state, is not written again.
        """
        if self._closed:
            raise CheckpointError(f"the checkpoints in {self.directory} are closed")
        step = operator.index(step)
        if step < 0:
            raise CheckpointError(f"a checkpoint step must not be negative: {step}")
        snapshot.check_json(metadata, "metadata")
        self.wait()
        copy = snapshot.take(state)
        score = None if metric is None or not math.isfinite(metric) else float(metric)
        manifest = Manifest(json.loads(json.dumps(metadata)), score, [])
        self._together = self._together or processes.Rendezvous()
        job = self._worker.submit(self._write, step, copy, manifest, self._together)
        self._pending = step, job
        if block:
            self.wait()

    def restore(
        self,
        target: PyTree,
        step: int | None = None,
        check_metadata: Callable[[dict], None] = lambda metadata: None,
    ) -> Restored:
        """Read a checkpoint into the structure of a target.

        Args:
          target: pytree of arrays or of jax.ShapeDtypeStruct; its shardings are honoured.
          step: step to read; None for the newest intact one.
          check_metadata: raises CorruptCheckpointError for metadata that no run writes.
        """

        def check(manifest: Manifest) -> None:
            check_metadata(manifest.metadata)
            snapshot.check_target(manifest.leaves, target)

        stored = self.read(step, check, snapshot.own_rows(target))
        state = snapshot.rebuild(stored.leaves, stored.arrays, target)
        return Restored(stored.step, state, stored.metadata, stored.warnings)

    def read(
        self,
        step: int | None = None,
        check: Check = lambda manifest: None,
        rows: Mapping[str, range] = MappingProxyType({}),
    ) -> StoredCheckpoint:
        """Read the newest intact checkpoint, or that of one step, as named arrays.

        Args:
          step: step to read; None for the newest intact one.
          check: called with its manifest before its arrays are read; may raise.
          rows: those that are needed of a leaf, where not all are; others may be zero.
        """
        self.wait()
        # The list of process 0: others may see an older state of a shared disk.
        seen = self.steps() if processes.is_main() else []
        steps: list[int] = json.loads(processes.of_main(json.dumps(seen)))
        candidates = steps[::-1] if step is None else [step]
        if not steps or candidates[0] not in steps:
            which = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            available = f"; there are steps {', '.join(map(str, steps))}" if steps else ""
            raise CheckpointError(f"{which} in {self.directory}{available}")
        warnings = []
        for candidate in candidates:
            folder, damage, too_large, found = self.directory / str(candidate), "", "", None
            try:
                found = _read(folder, check, rows)
            except CorruptCheckpointError as error:
                damage = str(error)
            except CheckpointError:  # of another configuration, which all processes find
                raise
            except UserError as error:  # intact, but too large for the memory of this machine
                too_large = str(error)
            processes.raise_together(too_large)
            # What one process cannot read, all must skip.
            damage = next(filter(None, processes.gather(damage)), "")
            if damage or found is None:
                self._damaged.add(candidate)
                warnings.append(f"checkpoint {folder} is damaged and was skipped: {damage}")
                continue
            manifest, arrays = found
            return StoredCheckpoint(candidate, manifest.leaves, arrays, manifest.metadata, warnings)
        raise CheckpointError(
            f"no intact checkpoint in {self.directory}; start a new run or restore a copy:\n"
            + "\n".join(warnings)
        )

    def steps(self) -> list[int]:
        """Return the steps that have a folder, oldest first, intact or damaged."""
        if not self.directory.is_dir():
            return []
        names = [entry.name for entry in self.directory.iterdir() if entry.is_dir()]
        return sorted(int(n) for n in names if n.isdecimal() and n.isascii() and str(int(n)) == n)

    def wait(self) -> None:
        """Return when the save in progress is on disk; raise SaveError if it failed."""
        if self._pending is None:
            return
        step, job = self._pending
        futures.wait([job])
        self._pending = None
        error = job.exception()
        if error is not None:
            raise SaveError(_save_error(step, self.directory, error)) from error

    def close(self) -> None:
        """Finish the save in progress; raise SaveError if it failed."""
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

    def _write(
        self,
        step: int,
        copy: snapshot.Snapshot,
        manifest: Manifest,
        together: processes.Rendezvous,
    ) -> None:
        """Commit one step, then prune old ones. Runs in the worker thread."""
        manifest = manifest._replace(leaves=snapshot.with_digests(copy))
        final, draft = self.directory / str(step), self.directory / f".saving-{step}"
        part = _part(processes.index())
        written = together.gather(lambda: self._prepare(final, draft, manifest))
        if all(answer == "saved" for answer in written):
            return
        try:
            digests = together.gather(lambda: _write_part(draft / part, copy, manifest))
            together.gather(lambda: self._commit(step, draft, manifest, digests[1:]))
        except BaseException:
            if processes.is_main():
                shutil.rmtree(draft, ignore_errors=True)  # a full disk must get its space back
            raise

    def _prepare(self, final: Path, draft: Path, manifest: Manifest) -> str:
        """Clear leftovers; return "saved" if this process's part is on disk already."""
        if processes.is_main():
            self.directory.mkdir(parents=True, exist_ok=True)
            if not self._cleaned:
                self._remove_unfinished()
                self._cleaned = True
            shutil.rmtree(draft, ignore_errors=True)
        part = final / _part(processes.index())
        return "saved" if part.exists() and self._is_saved(part, manifest, int(final.name)) else ""

    def _commit(self, step: int, draft: Path, manifest: Manifest, parts: list[str]) -> str:
        """On process 0, when all parts are written: add the manifest, and rename the folder."""
        if not processes.is_main():
            return ""
        final = self.directory / str(step)
        write_manifest(draft, manifest._replace(parts=parts))
        if final.exists():
            move_aside(final, "damaged" if step in self._damaged else "replaced")
        draft.rename(final)
        atomic_io.sync(self.directory)
        self._damaged.discard(step)
        self._prune(step)
        return ""

    def _is_saved(self, folder: Path, manifest: Manifest, step: int) -> bool:
        """Return whether a part is intact and holds the same state; remember a damaged one."""
        try:
            stored = read_manifest(folder)
            array_io.read_arrays(folder / _ARRAYS, stored.leaves)
        except CorruptCheckpointError:
            self._damaged.add(step)
            return False
        except UserError:  # too large to be compared
            return False
        others = processes.count() - 1 if processes.is_main() else 0
        return stored.leaves == manifest.leaves and len(stored.parts) == others

    def _prune(self, just_saved: int) -> None:
        """Remove all but the newest steps and the best one; damaged ones stay and do not count."""
        if self._keep == "all":
            return
        metrics = {}
        for step in set(self.steps()) - self._damaged:
            try:
                metrics[step] = read_manifest(self.directory / str(step)).metric
            except CorruptCheckpointError:
                continue
        keep = {just_saved, *sorted(metrics)[-self._keep :]}
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


def _part(process: int) -> str:
    """Return the folder of a process's part in that of a step: process 0's is the folder itself."""
    return f"process-{process}" if process else ""


def _write_part(folder: Path, copy: snapshot.Snapshot, manifest: Manifest) -> str:
    """Write the arrays of one process, and its manifest; return the digest of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    array_io.write_arrays(folder / _ARRAYS, copy.arrays)
    if processes.is_main():
        return ""  # its manifest is the last to be written
    return write_manifest(folder, Manifest({}, None, manifest.leaves))


def _read(
    folder: Path, check: Check, needed: Mapping[str, range]
) -> tuple[Manifest, list[np.ndarray]]:
    """Read a checkpoint: its first part, and of the others those that hold rows that are needed.

    `check` is called before any array is read.
    """
    first = read_manifest(folder)
    places = [folder / _part(process) for process in range(len(first.parts) + 1)]
    known = zip(places[1:], first.parts, strict=True)
    others = [read_manifest(place, digest) for place, digest in known]
    parts = [first.leaves, *(manifest.leaves for manifest in others)]
    whole = first._replace(leaves=snapshot.joined(parts))
    check(whole)
    found: dict[str, list[tuple[range, np.ndarray]]] = {leaf.path: [] for leaf in whole.leaves}
    for place, leaves, rows in zip(places, parts, snapshot.rows_of_parts(parts), strict=True):
        if place != folder and not _overlap(rows, needed):
            continue
        for leaf, data in zip(leaves, array_io.read_arrays(place / _ARRAYS, leaves), strict=True):
            found[leaf.path].append((rows[leaf.path], data))
    return whole, [_assembled(leaf, found[leaf.path]) for leaf in whole.leaves]


def _assembled(leaf: snapshot.Leaf, pieces: list[tuple[range, np.ndarray]]) -> np.ndarray:
    """Return the rows that were read, in their places; others are not touched: no memory."""
    first = pieces[0][1]
    if first.shape == leaf.stored_shape:
        return first
    whole = np.zeros(leaf.stored_shape, first.dtype)
    for rows, data in pieces:
        whole[rows.start : rows.stop] = data
    return whole


def _overlap(rows: dict[str, range], needed: Mapping[str, range]) -> bool:
    """Tell whether rows are needed of at least one leaf; all are, where nothing is said."""
    pairs = [(each, needed.get(path, each)) for path, each in rows.items()]
    return any(max(a.start, b.start) < min(a.stop, b.stop) for a, b in pairs)


def _checked_path(directory: Path, mode: int) -> Path:
    """Return the absolute path of a directory that exists or can be created with this access."""
    path = nearest = directory.expanduser().resolve()
    while not os.path.exists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise CheckpointError(f"cannot save checkpoints in {path}: {nearest} is a file")
    if not os.access(nearest, mode | os.X_OK):
        verb, access = ("save", "writable") if mode & os.W_OK else ("read", "readable")
        raise CheckpointError(
            f"cannot {verb} checkpoints in {path}: {nearest} is not {access}; "
            "change its permissions or choose another directory"
        )
    return path


def move_aside(folder: Path, why: str) -> None:
    """Rename a folder that is in the way, so that a person can inspect it."""
    n = 1
    while (aside := folder.with_name(f"{folder.name}.{why}-{n}")).exists():
        n += 1
    folder.rename(aside)


def _save_error(step: int, directory: Path, error: BaseException) -> str:
    texts = [os.strerror(code) for code in _DISK_FULL]
    full = next((text for text in texts if text in str(error)), None)
    fix = "free some disk space" if full else "check the disk and its permissions"
    other = re.match(r"process \d+: ", str(error)) if full else None
    return (
        f"the checkpoint of step {step} could not be written to {directory}: "
        f"{other[0] if other else ''}{full or first_line(error)}; {fix}. Earlier checkpoints are "
        "intact"
    )


def _body_digest(body: dict) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> str:
    """Write the manifest of a checkpoint and flush it to disk; return its digest."""
    leaves = [leaf._asdict() for leaf in manifest.leaves]
    body = {"format": _FORMAT, **manifest._asdict(), "leaves": leaves}
    digest = _body_digest(body)
    atomic_io.write_text(folder / _MANIFEST, json.dumps({"digest": digest, "body": body}))
    atomic_io.sync(folder)
    return digest


def read_manifest(folder: Path, digest: str | None = None) -> Manifest:
    """Read the manifest of a checkpoint; raise CorruptCheckpointError unless it is intact.

    That of a part must have the `digest` that the first part knows.
    """
    try:
        document = json.loads(atomic_io.read_text(folder / _MANIFEST))
        body = document["body"]
        intact = document["digest"] == _body_digest(body) and digest in (None, document["digest"])
    except (UserError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(f"{_MANIFEST} cannot be read ({first_line(error)})") from error
    if not intact:
        raise CorruptCheckpointError(f"{_MANIFEST} does not match its digest")
    return _parse_manifest(body)


def _parse_manifest(body: Any) -> Manifest:
    """Validate the fields of a manifest; its digest proves only that no bit flipped."""
    if not isinstance(body, dict):
        raise CorruptCheckpointError(f"{_MANIFEST} holds {body!r:.40}, not an object")
    if body.get("format") != _FORMAT or isinstance(body["format"], bool):
        raise CorruptCheckpointError(
            f"format {body.get('format')!r:.40} is unknown to this version of jaxrl"
        )
    metadata, metric, leaves = (body.get(name) for name in ("metadata", "metric", "leaves"))
    if not isinstance(metadata, dict) or not isinstance(leaves, list):
        raise CorruptCheckpointError(f"{_MANIFEST} has no metadata, or no list of leaves")
    if metric is not None and not snapshot.is_number(metric):
        raise CorruptCheckpointError(
            f"{_MANIFEST} has the metric {metric!r:.40}, which is not a finite number"
        )
    parts = body.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise CorruptCheckpointError(f"{_MANIFEST} has the parts {parts!r:.40}")
    parsed = [snapshot.Leaf.from_json(leaf) for leaf in leaves]
    if len({leaf.path for leaf in parsed}) < len(parsed):
        raise CorruptCheckpointError(f"{_MANIFEST} has two leaves of the same path")
    return Manifest(metadata, metric, parsed, parts)


def _wait_before_exit(manager: CheckpointManager) -> None:
    """Finish the save in progress when Python begins to exit.

    `atexit` is too late: by then no thread pool accepts work, and a library that submits some in
    the middle of a save would wait for ever.
    """
    reference = weakref.ref(manager)

    def wait() -> None:
        if (living := reference()) is not None:
            with contextlib.suppress(Exception):
                living.wait()

    # Python has no public name for this moment; without the private one nothing is finished.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(wait)
