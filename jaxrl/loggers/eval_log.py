"""evaluations.npz: all evaluations of a run, in the layout of SB3's EvalCallback."""

from pathlib import Path

import numpy as np

from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers import sinks
from jaxrl.utils import atomic_io, npz

_DAMAGED = (OSError, UserError, KeyError, ValueError)


class EvalLog:
    """Stores all evaluations; the small file is rewritten each time."""

    def __init__(self, path: Path, resumed_at: int | None) -> None:
        self._path = path
        self._rows: list[tuple[int, Episodes]] = []
        self.remarks: list[str] = []  # problems of the file of a resumed run
        if resumed_at is not None and path.exists():
            try:
                self._rows = [row for row in _load(path) if row[0] <= resumed_at]
            except _DAMAGED as error:
                # No reason to stop: metrics.jsonl has the means.
                backup = sinks.backup_path(path)
                path.replace(backup)
                self.remarks.append(f"{path} is damaged and was moved to {backup.name}: {error}")

    def add(self, step: int, result: Episodes) -> None:
        """Append one evaluation and write the file."""
        if self._rows and not _same_layout(self._rows[-1][1], result):
            self._start_new_file()
        columns = [None if x is None else np.asarray(x) for x in result[:3]]
        self._rows.append((step, Episodes(*columns)))  # type: ignore[arg-type]
        self._write()

    def move_to(self, folder: Path) -> None:
        """Write the file in another folder from now on."""
        self._path = folder / self._path.name
        if self._rows:
            self._write()

    def _write(self) -> None:
        result = self._rows[-1][1]
        arrays = {
            "timesteps": np.array([step for step, _ in self._rows], np.int64),
            "results": np.stack([np.asarray(r.returns) for _, r in self._rows]),
            "ep_lengths": np.stack([np.asarray(r.lengths) for _, r in self._rows]),
        }
        if result.successes is not None:
            arrays["successes"] = np.stack([np.asarray(r.successes) for _, r in self._rows])
        with atomic_io.replacing(self._path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    def _start_new_file(self) -> None:
        """Rename the file: in this layout all evaluations have the same number of episodes."""
        last = self._rows[-1][0]
        self._path.replace(self._path.with_name(f"{self._path.stem}-until-{last}.npz"))
        self._rows = []


def _same_layout(first: Episodes, second: Episodes) -> bool:
    """Return whether two evaluations have as many episodes, and both or neither have success."""
    same_number = len(first.returns) == len(second.returns)
    return same_number and (first.successes is None) == (second.successes is None)


def _load(path: Path) -> list[tuple[int, Episodes]]:
    with npz.opened(path) as archive:
        names = ("timesteps", "results", "ep_lengths", "successes")
        data = {name: archive.read(name) for name in names if name in archive.names}
    steps, shape = data.pop("timesteps"), data["results"].shape
    consistent = all(x.shape == shape and x.dtype.kind in "fiub" for x in data.values())
    if (
        not consistent
        or len(shape) != 2
        or steps.shape != shape[:1]
        or steps.dtype.kind not in "iu"
    ):
        raise ValueError("not the evaluations of a run")
    successes = data.get("successes")
    return [
        (
            int(step),
            Episodes(
                data["results"][i],
                data["ep_lengths"][i],
                None if successes is None else successes[i],
            ),
        )
        for i, step in enumerate(steps)
    ]
