"""Ready-made callbacks, for `jaxrl.fit(config, callbacks=[...])`.

    import jaxrl
    from jaxrl import callbacks

    jaxrl.fit("cartpole", callbacks=[
        callbacks.StopOnReward(450),
        lambda context: {"spread": context.metrics["rollout/ep_rew_mean"] / context.step},
    ])

A callback is a function of a CallbackContext, called once per cycle before its row is logged, or an
object with any of the methods on_training_start, on_cycle, on_evaluation, on_new_best, on_epoch,
on_log and on_training_end. It returns None (continue), False (stop), a dict (values to log) or a
CallbackAction. The state of callbacks is not saved: a resumed run begins with new ones.

Callbacks run on the CPU between compiled calls and get copies of plain numbers, so they cannot
change what is trained or cause a compilation.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError, message
from jaxrl.loggers import tensorboard
from jaxrl.rendering import SUFFIXES
from jaxrl.utils.formatting import plural

__all__ = [
    "EVENTS",
    "Callback",
    "CallbackAction",
    "CallbackContext",
    "CallbackResult",
    "CheckpointEvery",
    "EvaluateEvery",
    "LogMetrics",
    "RecordVideo",
    "StopOnNoImprovement",
    "StopOnReward",
    "StopOnTime",
]


# In the order in which they happen; from "cycle" to "log" in every cycle that has them.
EVENTS = ("training_start", "cycle", "evaluation", "new_best", "epoch", "log", "training_end")


@dataclass(frozen=True)
class CallbackContext:
    """The state of a run that a callback sees; it is read-only."""

    event: str
    """The event: one of EVENTS."""
    step: int
    """Environment steps done."""
    cycle: int
    """Cycles done."""
    epoch: int
    """The epoch this belongs to, counted from 1."""
    elapsed: float
    """Seconds of the run, including the time before a resume."""
    metrics: Mapping[str, float]
    """Metrics of this cycle by their names in the log; complete at "log"."""
    evaluation: Mapping[str, float]
    """The last evaluation, of this cycle or an earlier one; empty before the first."""
    best: float | None
    """Best mean reward of all evaluations."""
    folder: Path
    """The run folder."""
    config: TrainConfig
    """The settings of the run."""


class CallbackAction(NamedTuple):
    """What a callback may return to request something from the run."""

    stop: str = ""
    """Reason to stop after this cycle; the state is saved, and the run can be resumed."""
    save: bool = False
    """Write a checkpoint after this cycle."""
    evaluate: bool = False
    """Evaluate now (from "cycle" only), unless an evaluation is due anyway."""
    log: Mapping[str, float] = MappingProxyType({})
    """Values to add to this cycle's row; names without a slash become custom/<name>."""


# None or True: continue. False: stop. A dict: values to log.
CallbackResult = CallbackAction | bool | Mapping[str, float] | None
# A function is called once per cycle, at "log"; any other object has on_<event> methods, each of
# which is such a function.
Callback = Callable[[CallbackContext], CallbackResult] | object


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"callbacks: {name} must be at least 1, not {value}.")


def _needs_evaluations(context: CallbackContext) -> None:
    if not context.config.evaluates:
        raise UserError("this callback needs evaluations; set --eval.num-envs > 0.")


@dataclass(frozen=True)
class CheckpointEvery:
    """Save the full state every N cycles, in addition to --checkpoint.

    SB3's CheckpointCallback. Pruning keeps the newest --checkpoint.keep and the best.
    """

    cycles: int

    def __post_init__(self) -> None:
        _at_least_one("CheckpointEvery", self.cycles)

    def on_log(self, context: CallbackContext) -> CallbackAction:
        """Request a checkpoint if it is due."""
        return CallbackAction(save=context.cycle % self.cycles == 0)


@dataclass(frozen=True)
class EvaluateEvery:
    """Evaluate every N cycles, in addition to the end of each epoch. SB3's EvalCallback."""

    cycles: int

    def __post_init__(self) -> None:
        _at_least_one("EvaluateEvery", self.cycles)

    def on_cycle(self, context: CallbackContext) -> CallbackAction:
        """Request an evaluation if it is due."""
        return CallbackAction(evaluate=context.cycle % self.cycles == 0)


@dataclass(frozen=True)
class StopOnReward:
    """Stop when an evaluation reaches a mean reward. SB3's StopTrainingOnRewardThreshold."""

    threshold: float

    def on_training_start(self, context: CallbackContext) -> None:
        """Raise a UserError if the run has no evaluations."""
        _needs_evaluations(context)

    def on_evaluation(self, context: CallbackContext) -> CallbackAction:
        """Compare the evaluation with the threshold."""
        reached = context.evaluation["eval/mean_reward"]
        if not reached >= self.threshold:  # NaN has not reached it
            return CallbackAction()
        return CallbackAction(stop=f"mean reward {reached:.4g} has reached {self.threshold:.4g}")


class StopOnNoImprovement:
    """Stop after N consecutive evaluations without a new best.

    SB3's StopTrainingOnNoModelImprovement; the first `at_least` evaluations do not count.
    """

    def __init__(self, evaluations: int, at_least: int = 0) -> None:
        _at_least_one("StopOnNoImprovement", evaluations)
        self.evaluations, self.at_least = evaluations, at_least
        self._evaluated = self._without_best = 0
        self._best: float | None = None

    def on_training_start(self, context: CallbackContext) -> None:
        """Start from the best of the run before a resume."""
        _needs_evaluations(context)
        self._evaluated = self._without_best = 0
        self._best = context.best

    def on_evaluation(self, context: CallbackContext) -> CallbackAction:
        """Count this evaluation."""
        better = context.best != self._best
        self._best, self._evaluated = context.best, self._evaluated + 1
        counts = not better and self._evaluated > self.at_least
        self._without_best = self._without_best + 1 if counts else 0
        if self._without_best < self.evaluations:
            return CallbackAction()
        number = plural(self._without_best, "evaluation")
        return CallbackAction(stop=f"no better mean reward in {number}")


@dataclass(frozen=True)
class StopOnTime:
    """Stop after a number of minutes, including compilation and the time before a resume."""

    minutes: float

    def on_log(self, context: CallbackContext) -> CallbackAction:
        """Compare the elapsed time with the limit."""
        over = context.elapsed >= 60 * self.minutes
        return CallbackAction(stop=f"{self.minutes:g} minutes are over" if over else "")


@dataclass(frozen=True)
class RecordVideo:
    """Render an episode of the best policy every N epochs, as `jaxrl.render` does.

    A GIF is also one of TensorBoard's images. Training continues if a video cannot be written:
    without FFmpeg, or on a full disk.
    """

    epochs: int
    suffix: str = ".gif"
    seed: int = 0
    seconds: float | None = None
    """The most that is shown of an episode."""

    def __post_init__(self) -> None:
        _at_least_one("RecordVideo", self.epochs)
        if self.suffix not in SUFFIXES:
            kinds = ", ".join(SUFFIXES)
            raise UserError(f"callbacks: RecordVideo: suffix must be one of {kinds}.")

    def on_training_start(self, context: CallbackContext) -> None:
        """Raise a UserError if the run has no evaluations."""
        _needs_evaluations(context)

    def on_epoch(self, context: CallbackContext) -> None:
        """Write videos/step-<step> if it is due."""
        if context.epoch % self.epochs or context.best is None:
            return
        from jaxrl.rendering.run import render_run

        members = sorted(path.parent for path in context.folder.glob("*/policies"))
        run = members[0] if members else context.folder  # of several, the first
        out = context.folder / "videos" / f"step-{context.step}{self.suffix}"
        try:
            render_run(run, context.config, out, seed=self.seed, seconds=self.seconds)
            if self.suffix == ".gif" and context.config.log.tensorboard:
                # A folder of its own: TensorBoard reads only the newest file of each.
                tensorboard.write_gif(run / "tensorboard" / "videos", context.step, out)
        except Exception as error:
            if (reason := message(error)) is None:
                raise
            print(
                f"warning: no video of step {context.step:,}, training continues: {reason}",
                file=sys.stderr,
            )


@dataclass(frozen=True)
class LogMetrics:
    """Log values computed from a cycle's metrics; names without a slash go under custom/."""

    function: Callable[[Mapping[str, float]], Mapping[str, float]]

    def on_log(self, context: CallbackContext) -> CallbackAction:
        """Request the values to be logged."""
        return CallbackAction(log=self.function(context.metrics))
