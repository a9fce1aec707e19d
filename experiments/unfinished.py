"""A program of a study in training, on disk: an interruption loses little of it.

It is saved when asked to stop, which loses nothing, and every two minutes besides.
"""

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.checkpoint.snapshot import CheckpointError
from jaxrl.config import TrainConfig, serialization
from jaxrl.programs.program import abstract_state
from jaxrl.training.population import Point, Population, Progress
from jaxrl.training.signals import StopRequest

_EVERY = 120.0  # seconds


class Unfinished:
    """What there is of the members of one program."""

    def __init__(self, checkpoints: CheckpointManager, stop: StopRequest):
        self._checkpoints, self._stop, self._saved = checkpoints, stop, time.monotonic()

    def progress(self, built: Population) -> Progress | None:
        """Return how far they came, if they were interrupted."""
        if not self._checkpoints.steps():
            return None
        try:
            found = self._checkpoints.restore(abstract_state(built.programs.program))
        except CheckpointError as error:  # damaged, or written by other code
            print(f"An interrupted program starts over: {error}")
            shutil.rmtree(self._checkpoints.directory)
            return None
        points = json.loads(found.metadata["points"])
        return Progress(found.state, found.step, [Point(s, tuple(each)) for s, each in points])

    def keep(self, progress: Progress) -> None:
        """Save it if it is time to; stop if asked to."""
        jax.block_until_ready(progress.state)  # or whoever asks waits for cycles that are queued
        if self._stop or time.monotonic() - self._saved > _EVERY:
            # As text: a figure may be no number, which metadata does not hold.
            metadata = {"points": json.dumps(progress.points)}
            asked = bool(self._stop)
            self._checkpoints.save(progress.cycles, progress.state, metadata, block=asked)
            self._saved = time.monotonic()
        if self._stop:
            raise KeyboardInterrupt(self._stop.signal)


@contextlib.contextmanager
def kept(out: Path, members: Sequence[TrainConfig], stop: StopRequest) -> Iterator[Unfinished]:
    """Keep the members of a program while they are trained; once they are finished, no more."""
    named = "\n".join(map(serialization.to_json, members)).encode()
    folder = out / "unfinished" / hashlib.sha256(named).hexdigest()[:16]
    with CheckpointManager(folder, keep_last=1) as checkpoints:
        yield Unfinished(checkpoints, stop)
    shutil.rmtree(folder, ignore_errors=True)
