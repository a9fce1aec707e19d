"""Train the runs of a study: the host loop with its checkpoints, one program for all members."""

import hashlib
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from jaxrl.callbacks import CallbackContext
from jaxrl.checkpoint.manager import move_aside
from jaxrl.checkpoint.snapshot import CheckpointError, SaveError
from jaxrl.config import TrainConfig, serialization
from jaxrl.loggers import metrics_log, run_dir
from jaxrl.programs import Executor, Program
from jaxrl.training import population
from jaxrl.training.fit import fit_or_resume
from jaxrl.training.nan_guard import NonFiniteEnvironmentError, TrainingDiverged
from jaxrl.training.run import Exchange
from jaxrl.training.summary import Result


class Curve(NamedTuple):
    """The evaluations of one run."""

    steps: list[int]
    metrics: dict[str, list[float]]  # one value for each evaluation, by name


class Started(NamedTuple):
    """A program that is being compiled."""

    program: Program
    executor: Executor
    indices: list[int]  # member of the program for each run: equal settings are trained once


def start(members: Sequence[TrainConfig]) -> Started:
    """Build one program for members that differ in seeds and traced settings, and compile it."""
    silent = {"tensorboard": False, "wandb": False, "mlflow": False, "video_epochs": 0}
    quiet = [replace(m, log=replace(m.log, **silent)) for m in members]
    distinct = list(dict.fromkeys(quiet))
    program = population.build(distinct)
    return Started(program, program.start(), [distinct.index(member) for member in quiet])


def train(
    started: Started, folder: Path, check_metrics: Callable[[Iterable[str]], None]
) -> list[Curve]:
    """Train all members to the end, and return the evaluations of each run.

    Args:
      started: the program to train.
      folder: parent of the run folders; an interrupted run continues from its last checkpoint.
      check_metrics: called with the names of the metrics of the first evaluation.

    Raises:
      KeyboardInterrupt: a signal stopped the run; its state was saved.
    """
    members = started.program.members
    run = run_folder(folder, members)
    fit(started, run, check_metrics)
    distinct = [
        read_curve(c, p) for c, p in zip(members, run_dir.of_members(run, members), strict=True)
    ]
    shutil.rmtree(run / "checkpoints", ignore_errors=True)  # the run is over
    return [distinct[index] for index in started.indices]


def run_folder(folder: Path, members: Sequence[TrainConfig], *also: str) -> Path:
    """Return the run folder of members: the same settings continue where they were interrupted."""
    named = "\n".join([*map(serialization.to_json, members), *also]).encode()
    return folder / f"{members[0].preset}-{hashlib.sha256(named).hexdigest()[:12]}"


def fit(
    started: Started,
    run: Path,
    check_metrics: Callable[[Iterable[str]], None],
    exchange: Exchange | None = None,
) -> None:
    """Train in a run folder to the end, or from where an earlier command was interrupted.

    Raises:
      KeyboardInterrupt: a signal stopped the run; its state was saved.
    """
    try:
        result = _fit_or_restart(started, run, [_MetricCheck(check_metrics)], exchange)
        if result.stopped_by:
            raise KeyboardInterrupt(result.stopped_by)
    except (TrainingDiverged, NonFiniteEnvironmentError) as error:
        print(f"warning: {error}", flush=True)


def _fit_or_restart(
    started: Started, run: Path, callbacks: list[Any], exchange: Exchange | None = None
) -> Result:
    def train() -> Result:
        return fit_or_resume(
            started.program, run, callbacks, executor=started.executor, exchange=exchange
        )

    try:
        return train()
    except SaveError:  # the disk is full, and what is on it is intact
        raise
    except CheckpointError as error:  # damaged, or written by other code
        print(f"Cannot resume; starting from scratch: {error}")
        move_aside(run, "unusable")
        return train()


@dataclass
class _MetricCheck:
    """Check from the first evaluation on that evaluations have the metric of the study."""

    check: Callable[[Iterable[str]], None]

    def on_evaluation(self, context: CallbackContext) -> None:
        self.check(name for name in context.evaluation if name.startswith("eval/"))


def read_curve(config: TrainConfig, run: Path) -> Curve:
    """Read the evaluations of a run from its log; those it did not reach are NaN."""
    rows = [r for r in metrics_log.read(run / "metrics.jsonl").rows if "eval/mean_reward" in r]
    names = dict.fromkeys(
        name
        for row in rows
        for name in row
        if name.startswith("eval/") and name != "eval/best_mean_reward"
    )
    by_step = {int(row["step"]): row for row in rows}
    steps = sorted({*by_step, *_planned_steps(config)})
    return Curve(
        steps, {n: [by_step.get(step, {}).get(n, math.nan) for step in steps] for n in names}
    )


def _planned_steps(config: TrainConfig) -> list[int]:
    """Return the environment steps at the ends of epochs, where evaluations are due."""
    ends = {*range(config.cycles, config.total_cycles + 1, config.cycles), config.total_cycles}
    return [cycles * config.iterations * config.steps_per_iteration for cycles in ends]
