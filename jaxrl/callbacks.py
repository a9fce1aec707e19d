"""Ready-made callbacks, for `jaxrl.fit(config, callbacks=[...])`.

    import jaxrl
    from jaxrl import callbacks, presets

    jaxrl.fit(presets.get("cartpole"), callbacks=[
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
from typing import Any, NamedTuple

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError, message
from jaxrl.rendering import SUFFIXES

__all__ = [
    "EVENTS",
    "CallbackResult",
    "CallbackAction",
    "Callback",
    "CheckpointEvery",
    "EvaluateEvery",
    "LogMetrics",
    "CallbackContext",
    "RecordVideo",
    "StopOnNoImprovement",
    "StopOnReward",
    "StopOnTime",
]


# In the order in which they happen; from "cycle" to "log" in every cycle that has them.
EVENTS = ("training_start", "cycle", "evaluation", "new_best", "epoch", "log", "training_end")


@dataclass(frozen=True)
class CallbackContext:
    """What a callback is shown; nothing of it can be changed."""

    event: str
    """What has just happened: one of EVENTS."""
    step: int
    """Environment steps done."""
    cycle: int
    """Cycles done."""
    epoch: int
    """The epoch this belongs to, counted from 1."""
    elapsed: float
    """Seconds of the whole run, before a resume included."""
    metrics: Mapping[str, float]
    """What is known of this cycle, by the names of the log; so far, or all of it at "log"."""
    evaluation: Mapping[str, float]
    """The last evaluation, of this cycle or an earlier one; empty before the first."""
    best: float | None
    """Best mean reward of all evaluations."""
    folder: Path
    """The run folder."""
    config: TrainConfig
    """The settings of the run."""


class CallbackAction(NamedTuple):
    """What a callback may return to have something done; it needs no other way to the run."""

    stop: str = ""
    """Why to stop after this cycle; the state is saved, and the run can be resumed."""
    save: bool = False
    """Write a checkpoint after this cycle."""
    evaluate: bool = False
    """Evaluate now (from "cycle" only), unless that is done anyway."""
    log: Mapping[str, float] = MappingProxyType({})
    """More numbers for this cycle's row; names without a slash become custom/<name>."""


# None or True: go on. False: stop. A dict: numbers for the log.
CallbackResult = CallbackAction | bool | Mapping[str, float] | None
# A function is called once per cycle, at "log"; an object has on_<event> methods.
Callback = Any


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"callbacks: {name} must be at least 1, not {value}.")


def _needs_evaluations(context: CallbackContext) -> None:
    if not context.config.eval.num_envs:
        raise UserError("it goes by evaluations, but --eval.num-envs is 0.")


@dataclass(frozen=True)
class CheckpointEvery:
    """Save the full state every so many cycles, besides what --checkpoint asks for.

    SB3's CheckpointCallback. The newest --checkpoint.keep-last of all are kept, and the best.
    """

    cycles: int

    def __post_init__(self) -> None:
        _at_least_one("CheckpointEvery", self.cycles)

    def on_log(self, context: CallbackContext) -> CallbackAction:
        """CallbackAction for a checkpoint when it is time."""
        return CallbackAction(save=context.cycle % self.cycles == 0)


@dataclass(frozen=True)
class EvaluateEvery:
    """Evaluate every so many cycles, besides the end of each epoch. SB3's EvalCallback."""

    cycles: int

    def __post_init__(self) -> None:
        _at_least_one("EvaluateEvery", self.cycles)

    def on_cycle(self, context: CallbackContext) -> CallbackAction:
        """CallbackAction for an evaluation when it is time."""
        return CallbackAction(evaluate=context.cycle % self.cycles == 0)


@dataclass(frozen=True)
class StopOnReward:
    """Stop once an evaluation's mean reward is high enough. SB3's StopTrainingOnRewardThreshold."""

    threshold: float

    def on_training_start(self, context: CallbackContext) -> None:
        """Refuse a run in which nothing would ever be compared."""
        _needs_evaluations(context)

    def on_evaluation(self, context: CallbackContext) -> CallbackAction:
        """Compare the evaluation that has just ended."""
        reached = context.evaluation["eval/mean_reward"]
        if not reached >= self.threshold:  # what is no number has reached nothing
            return CallbackAction()
        return CallbackAction(stop=f"mean reward {reached:.4g} has reached {self.threshold:.4g}")


class StopOnNoImprovement:
    """Stop after so many evaluations in a row without a new best.

    SB3's StopTrainingOnNoModelImprovement; the first `at_least` evaluations never count.
    """

    def __init__(self, evaluations: int, at_least: int = 0) -> None:
        _at_least_one("StopOnNoImprovement", evaluations)
        self.evaluations, self.at_least = evaluations, at_least
        self._seen = self._vain = 0
        self._best: float | None = None

    def on_training_start(self, context: CallbackContext) -> None:
        """Begin from what an earlier part of the run has reached."""
        _needs_evaluations(context)
        self._seen = self._vain = 0
        self._best = context.best

    def on_evaluation(self, context: CallbackContext) -> CallbackAction:
        """Count this evaluation."""
        better = context.best != self._best
        self._best, self._seen = context.best, self._seen + 1
        self._vain = 0 if better or self._seen <= self.at_least else self._vain + 1
        if self._vain < self.evaluations:
            return CallbackAction()
        return CallbackAction(stop=f"no better mean reward in {self._vain} evaluations")


@dataclass(frozen=True)
class StopOnTime:
    """Stop when the run has taken so long, compilation and earlier parts of it included."""

    minutes: float

    def on_log(self, context: CallbackContext) -> CallbackAction:
        """Look at the clock."""
        over = context.elapsed >= 60 * self.minutes
        return CallbackAction(stop=f"{self.minutes:g} minutes are over" if over else "")


@dataclass(frozen=True)
class RecordVideo:
    """Draw an episode of the best policy so far every so many epochs, as `jaxrl.render` does.

    Training goes on without a video that cannot be made: where FFmpeg is missing, or the disk full.
    """

    epochs: int
    suffix: str = ".gif"
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least_one("RecordVideo", self.epochs)
        if self.suffix not in SUFFIXES:
            kinds = ", ".join(SUFFIXES)
            raise UserError(f"callbacks: RecordVideo: suffix must be one of {kinds}.")

    def on_training_start(self, context: CallbackContext) -> None:
        """Refuse a run in which no policy would ever be the best."""
        _needs_evaluations(context)

    def on_epoch(self, context: CallbackContext) -> None:
        """Write videos/step-<step> when it is time."""
        if context.epoch % self.epochs or context.best is None:
            return
        from jaxrl.rendering.run import render_run

        members = sorted(path.parent for path in context.folder.glob("*/policies"))
        shown = members[0] if members else context.folder  # of several, the first
        out = context.folder / "videos" / f"step-{context.step}{self.suffix}"
        try:
            render_run(shown, context.config, out, seed=self.seed)
        except Exception as error:
            if (reason := message(error)) is None:
                raise
            print(
                f"warning: no video of step {context.step:,}, training goes on: {reason}",
                file=sys.stderr,
            )


@dataclass(frozen=True)
class LogMetrics:
    """Log what a function makes of a cycle's metrics; names without a slash go under custom/."""

    function: Callable[[Mapping[str, float]], Mapping[str, float]]

    def on_log(self, context: CallbackContext) -> CallbackAction:
        """Compute and hand over."""
        return CallbackAction(log=self.function(context.metrics))
