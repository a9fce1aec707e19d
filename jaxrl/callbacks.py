"""Ready-made callbacks, for `jaxrl.fit(config, callbacks=[...])`.

    import jaxrl
    from jaxrl import callbacks, presets

    jaxrl.fit(presets.get("cartpole"), callbacks=[
        callbacks.StopOnReward(450),
        lambda moment: {"spread": moment.metrics["rollout/ep_rew_mean"] / moment.step},
    ])

A callback is a function of a Moment, called once per cycle when all of it is known, or an object
with any of the methods on_training_start, on_cycle, on_evaluation, on_new_best, on_epoch, on_log
and on_training_end. It returns None (go on), False (stop), a dict (numbers for the log) or an Ask.
What callbacks remember is theirs: a resumed run begins with new ones.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxrl import config_json, render
from jaxrl.errors import UserError
from jaxrl.runtime.hooks import EVENTS, Answer, Ask, Callback, Moment

__all__ = [
    "EVENTS",
    "Answer",
    "Ask",
    "Callback",
    "CheckpointEvery",
    "EvaluateEvery",
    "LogMetrics",
    "Moment",
    "RecordVideo",
    "StopOnNoImprovement",
    "StopOnReward",
    "StopOnTime",
]


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"callbacks: {name} must be at least 1, not {value}.")


def _needs_evaluations(moment: Moment) -> None:
    if not moment.config.eval.num_envs:
        raise UserError("it goes by evaluations, but --eval.num-envs is 0.")


@dataclass(frozen=True)
class CheckpointEvery:
    """Save the full state every so many cycles, besides what --checkpoint asks for.

    SB3's CheckpointCallback. The newest --checkpoint.keep-last of all are kept, and the best.
    """

    cycles: int

    def __post_init__(self) -> None:
        _at_least_one("CheckpointEvery", self.cycles)

    def on_log(self, moment: Moment) -> Ask:
        """Ask for a checkpoint when it is time."""
        return Ask(save=moment.cycle % self.cycles == 0)


@dataclass(frozen=True)
class EvaluateEvery:
    """Evaluate every so many cycles, besides the end of each epoch. SB3's EvalCallback."""

    cycles: int

    def __post_init__(self) -> None:
        _at_least_one("EvaluateEvery", self.cycles)

    def on_cycle(self, moment: Moment) -> Ask:
        """Ask for an evaluation when it is time."""
        return Ask(evaluate=moment.cycle % self.cycles == 0)


@dataclass(frozen=True)
class StopOnReward:
    """Stop once an evaluation's mean reward is high enough. SB3's StopTrainingOnRewardThreshold."""

    threshold: float

    def on_training_start(self, moment: Moment) -> None:
        """Refuse a run in which nothing would ever be compared."""
        _needs_evaluations(moment)

    def on_evaluation(self, moment: Moment) -> Ask:
        """Compare the evaluation that has just ended."""
        reached = moment.evaluation["eval/mean_reward"]
        if not reached >= self.threshold:  # what is no number has reached nothing
            return Ask()
        return Ask(stop=f"mean reward {reached:.4g} has reached {self.threshold:.4g}")


class StopOnNoImprovement:
    """Stop after so many evaluations in a row without a new best.

    SB3's StopTrainingOnNoModelImprovement; the first `at_least` evaluations never count.
    """

    def __init__(self, evaluations: int, at_least: int = 0) -> None:
        _at_least_one("StopOnNoImprovement", evaluations)
        self.evaluations, self.at_least = evaluations, at_least
        self._seen = self._vain = 0
        self._best: float | None = None

    def on_training_start(self, moment: Moment) -> None:
        """Begin from what an earlier part of the run has reached."""
        _needs_evaluations(moment)
        self._seen = self._vain = 0
        self._best = moment.best

    def on_evaluation(self, moment: Moment) -> Ask:
        """Count this evaluation."""
        better = moment.best != self._best
        self._best, self._seen = moment.best, self._seen + 1
        self._vain = 0 if better or self._seen <= self.at_least else self._vain + 1
        if self._vain < self.evaluations:
            return Ask()
        return Ask(stop=f"no better mean reward in {self._vain} evaluations")


@dataclass(frozen=True)
class StopOnTime:
    """Stop when the run has taken so long, compilation and earlier parts of it included."""

    minutes: float

    def on_log(self, moment: Moment) -> Ask:
        """Look at the clock."""
        over = moment.elapsed >= 60 * self.minutes
        return Ask(stop=f"{self.minutes:g} minutes are over" if over else "")


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
        if self.suffix not in render.KINDS:
            kinds = ", ".join(render.KINDS)
            raise UserError(f"callbacks: RecordVideo: suffix must be one of {kinds}.")

    def on_training_start(self, moment: Moment) -> None:
        """Refuse a run in which no policy would ever be the best."""
        _needs_evaluations(moment)

    def on_epoch(self, moment: Moment) -> None:
        """Write videos/step-<step> when it is time."""
        if moment.epoch % self.epochs or moment.best is None:
            return
        own = [word for pair in config_json.imported_code(moment.config).items() for word in pair]
        members = sorted(path.parent for path in moment.folder.glob("*/policies"))
        shown = members[0] if members else moment.folder  # of several, the first
        out = moment.folder / "videos" / f"step-{moment.step}{self.suffix}"
        if render.main([str(shown), "--out", str(out), "--seed", str(self.seed), *own]):
            # The reason is printed by now.
            print(f"warning: no video of step {moment.step:,}; training goes on.", file=sys.stderr)


@dataclass(frozen=True)
class LogMetrics:
    """Log what a function makes of a cycle's metrics; names without a slash go under custom/."""

    function: Callable[[Mapping[str, float]], Mapping[str, float]]

    def on_log(self, moment: Moment) -> Ask:
        """Compute and hand over."""
        return Ask(log=self.function(moment.metrics))
