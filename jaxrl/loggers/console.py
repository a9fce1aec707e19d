"""Console output: a progress bar and a table on a terminal, plain lines elsewhere."""

import contextlib
import time

from rich import box
from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from jaxrl.utils.formatting import duration, short

# The metrics of a line of plain text, and their labels.
HEADLINE = {
    "rollout/ep_rew_mean": "return",
    "eval/mean_reward": "eval",
    "eval/success_rate": "success",
    "train/R_loss": "R_loss",
    "train/approx_kl": "kl",
    "train/explained_variance": "ev",
    "train/learning_rate": "lr",
}


class Console:
    """Progress of one run; `close` restores the terminal."""

    def __init__(self, total_steps: int) -> None:
        self._out = RichConsole(highlight=False)
        self._total, self._start = total_steps, 0
        self._began = time.monotonic()
        self._progress: Progress | None = None
        if self._out.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%  {task.fields[speed]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._out,
            )
            self._task = self._progress.add_task("training", total=total_steps, speed="")

    def say(self, text: str) -> None:
        """Print a line above the progress bar."""
        self._out.print(text, markup=False, soft_wrap=True)

    def training_begins(self, step: int) -> None:
        """Start the clock of the ETA: compilation is not part of it."""
        self._began, self._start = time.monotonic(), step
        if self._progress is not None:
            self._progress.start()
            self._progress.reset(self._task, total=self._total, completed=self._start)

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        """Print the metrics of one cycle."""
        if self._progress is not None:
            self._out.print(self._table(metrics))
            speed = f"{metrics.get('time/fps', 0):,.0f} steps/s"
            self._progress.update(self._task, completed=step, speed=speed)
            return
        elapsed = time.monotonic() - self._began
        fraction = (step - self._start) / max(self._total - self._start, 1)
        left = duration(elapsed / fraction - elapsed) if fraction > 0 else "?"
        values = [f"{label} {short(metrics[k])}" for k, label in HEADLINE.items() if k in metrics]
        fps = f"{metrics.get('time/fps', 0):,.0f} steps/s"
        self.say(f"{step:>13,} steps  {'  '.join(values)}  {fps}  left {left}")

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
            if self._progress is not None:
                self._progress.stop()
