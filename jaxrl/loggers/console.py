"""Console output: a progress bar and a table on a terminal, plain lines elsewhere."""

import contextlib
import math
import time
from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from jaxrl.config import TrainConfig
from jaxrl.utils.formatting import duration, short

# The metrics of a line of plain text, and their labels.
HEADLINE = {
    "rollout/ep_rew_mean": "return",
    "eval/mean_reward": "eval",
    "eval/success_rate": "success",
    "eval/success_rate_zero": "zero actions",
    "heldout/action_error": "action error",
    "train/R_loss": "R_loss",
    "train/approx_kl": "kl",
    "train/explained_variance": "ev",
    "train/learning_rate": "lr",
}
_LAST = (
    "eval/mean_reward",
    "eval/success_rate",
    "eval/success_rate_zero",
    "heldout/action_error",
    "train/learning_rate",
)
SILENT, QUIET, NORMAL, VERBOSE = range(-1, 3)
_MOST_LOSSES = 10  # in a line; more iterations are averaged in groups


class Console:
    """Progress of one run; `close` restores the terminal.

    Args:
      config: settings of the run.
      verbose: 0 prints warnings only; 1 a line for each cycle and epoch, or a table on a terminal;
        2 a table of all metrics and a line for each iteration everywhere.
      members: of a population. Steps are those of each, the speed is that of all.
    """

    def __init__(self, config: TrainConfig, verbose: int = NORMAL, members: int = 0) -> None:
        self._config, self._verbose = config, verbose
        self._out = RichConsole(highlight=False)
        self._total, self._start = config.total_iterations * config.steps_per_iteration, 0
        self._unit = "gradient steps" if config.offline else "steps"
        self._each, self._all = (" each", f" of all {members}") if members else ("", "")
        self._began = time.monotonic()
        self._epoch: list[dict[str, float]] = []  # rows of the epoch's cycles
        self._progress: Progress | None = None
        self._waiting: Progress | None = None  # seconds of a compilation
        if self._out.is_terminal and verbose > QUIET:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%  {task.fields[speed]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._out,
            )
            self._task = self._progress.add_task("training", total=self._total, speed="")

    def say(self, text: str) -> None:
        """Print a line above the progress bar, unless the console is quiet."""
        if self._verbose > QUIET:
            self._out.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning, on a quiet console too; a silent one prints nothing."""
        if self._verbose > SILENT:
            self._out.print(f"warning: {text}", markup=False, soft_wrap=True)

    def compiling(self, text: str) -> None:
        """Print what is being compiled; on a terminal, count the seconds until training begins."""
        self.say(text)
        if self._progress is not None:
            columns = (TextColumn("compiling"), TimeElapsedColumn())
            self._waiting = Progress(*columns, console=self._out, transient=True)
            self._waiting.add_task("")
            self._waiting.start()

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def training_begins(self, step: int) -> None:
        """Start the clock of the ETA: compilation is not part of it."""
        self._stop_waiting()
        self._began, self._start = time.monotonic(), step
        if self._progress is not None:
            self._progress.reset(self._task, total=self._total, completed=self._start)
            self._progress.start()

    def iterations(self, first: int, losses: Sequence[float]) -> None:
        """Print the mean loss of a learnt reward in each iteration, from number `first` on."""
        if self._verbose == VERBOSE:
            for number, loss in enumerate(losses, first):
                self.say(
                    f"iteration {number:,}/{self._config.total_iterations:,}: R_loss {loss:.4g}"
                )
            return
        groups = np.array_split(np.asarray(losses), min(len(losses), _MOST_LOSSES))
        many = f", {len(groups)} means" if len(groups) < len(losses) else ""
        means = " ".join(f"{group.mean():.4g}" for group in groups)
        self.say(f"R_loss of iterations {first:,} to {first + len(losses) - 1:,}{many}: {means}")

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        """Print the metrics of one cycle, and at the end of an epoch its summary."""
        cycles = int(metrics.get("time/cycle", 0))
        speed = f"{metrics.get('time/fps', 0):,.0f} {self._unit}/s{self._all}"
        if self._progress is not None:
            self._progress.update(
                self._task, completed=step, speed=speed, description=self._place(cycles)
            )
        if self._progress is not None or self._verbose == VERBOSE:
            if self._verbose > QUIET:
                self._out.print(self._table(metrics))
        else:
            elapsed = time.monotonic() - self._began
            fraction = (step - self._start) / max(self._total - self._start, 1)
            left = duration(elapsed / fraction - elapsed) if fraction > 0 else "?"
            text = (
                f"{step:>13,} {self._unit}{self._each}  {_headline(metrics)}  {speed}  left {left}"
            )
            self.say(f"{self._place(cycles)}{text}")
        self._epoch.append(metrics)
        if self._config.is_epoch_end(cycles):
            self._summarize(step, cycles)

    def _place(self, cycles: int) -> str:
        """Return "epoch i/N cycle j/M" of the cycle that has just ended."""
        if not cycles:
            return ""
        per_epoch = self._config.cycles
        epoch, cycle = divmod(cycles - 1, per_epoch)
        epochs = math.ceil(self._config.total_cycles / per_epoch)
        text = f"epoch {epoch + 1}/{epochs}"
        return f"{text} cycle {cycle + 1}/{per_epoch}" if per_epoch > 1 else text

    def _summarize(self, step: int, cycles: int) -> None:
        """Print a line for an epoch: means over its cycles, and its last evaluation.

        With one cycle in an epoch, the line of that cycle says the same.
        """
        rows, self._epoch = self._epoch, []
        if len(rows) < 2:
            return
        means = {}
        for name in {name for row in rows for name in row}:
            values = [row[name] for row in rows if name in row]
            means[name] = values[-1] if name in _LAST else float(np.mean(values))
        seconds = sum(row.get("time/cycle_seconds", 0.0) for row in rows)
        seconds += sum(row.get("time/eval_seconds", 0.0) for row in rows)
        epoch = self._place(cycles).partition(" cycle")[0]
        took = f"took {duration(seconds)}"
        self.say(f"{epoch} ends: {step:,} {self._unit}{self._each}  {_headline(means)}  {took}")

    def _table(self, metrics: dict[str, float]) -> Table:
        table = Table(box=box.ASCII2, show_header=False, pad_edge=False)
        group = ""
        for name in sorted(metrics):
            head, _, tail = name.partition("/")
            if head != group:
                group = head
                table.add_row(f"{head}/", "")
            table.add_row(f"   {tail}", short(metrics[name]))
        return table

    def close(self) -> None:
        """Stop the progress bar."""
        with contextlib.suppress(Exception):
            self._stop_waiting()
            if self._progress is not None:
                self._progress.stop()


def _headline(metrics: dict[str, float]) -> str:
    return "  ".join(
        f"{label} {short(metrics[k])}" for k, label in HEADLINE.items() if k in metrics
    )
