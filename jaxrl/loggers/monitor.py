"""Every training episode: monitor.csv, with the columns of Stable-Baselines3's Monitor."""

import contextlib
import csv
import io
import json
from collections import deque
from pathlib import Path
from typing import TextIO

import numpy as np

from jaxrl.utils import atomic_io

NAME = "monitor.csv"
WINDOW = 100  # episodes of the means, as in Stable-Baselines3
_COLUMNS = ("r", "l", "t", "step")


class Monitor:
    """Appends episodes; on resume, those after the checkpoint are dropped first.

    The columns are return, length, seconds since the start of the run when the episode was
    logged, and environment steps of the run when it ended.
    """

    def __init__(
        self, folder: Path, env: str, stack: contextlib.ExitStack, resumed_at: int | None
    ) -> None:
        self.path, self._stack, self._env = folder / NAME, stack, env
        self._resumed_at = resumed_at
        self._file: TextIO | None = None
        self._last: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def add(self, steps: np.ndarray, records: dict[str, np.ndarray], elapsed: float) -> None:
        """Write the episodes of a cycle.

        Args:
          steps: environment steps at each place of the first two axes of the records.
          records: "return" and "length", [iterations, T, N]; NaN where no episode ended.
          elapsed: seconds of the run.
        """
        returns, lengths = records["return"], records["length"]
        places = np.argwhere(np.isfinite(returns))
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        for place in map(tuple, places):
            pair = float(returns[place]), int(lengths[place])
            rows.writerow((f"{pair[0]:.6g}", pair[1], f"{elapsed:.3f}", int(steps[place[:2]])))
            self._last.append(pair)
        file = self._open()
        file.write(text.getvalue())
        file.flush()

    def means(self) -> dict[str, float]:
        """Return the means of return and length over the last 100 episodes."""
        if not self._last:
            return {}
        reward, length = np.mean(self._last, axis=0)
        return {
            f"rollout/ep_rew_mean_{WINDOW}": float(reward),
            f"rollout/ep_len_mean_{WINDOW}": float(length),
        }

    def _open(self) -> TextIO:
        if self._file is None:
            if self._resumed_at is not None:
                self._truncate(self._resumed_at)
            is_new = not self.path.exists()
            self._file = self._stack.enter_context(atomic_io.appending(self.path))
            if is_new:
                header = json.dumps({"env_id": self._env})
                self._file.write(f"#{header}\n{','.join(_COLUMNS)}\n")
        return self._file

    def _truncate(self, step: int) -> None:
        """Drop episodes that a resumed run will play again; remember the last ones before."""
        if not self.path.exists():
            return
        first, *lines = self.path.read_text().splitlines()
        kept = []
        for row in csv.DictReader(lines):
            with contextlib.suppress(TypeError, ValueError):  # a row that was cut off
                if int(row["step"]) <= step:
                    kept.append(",".join(row[name] for name in _COLUMNS))
                    self._last.append((float(row["r"]), int(row["l"])))
        atomic_io.write_text(self.path, "\n".join([first, ",".join(_COLUMNS), *kept, ""]))
