"""What the host keeps of one member of a run: where its results go, and what was best so far."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from jaxrl.algorithms import registry as algorithms
from jaxrl.config import TrainConfig
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers import sinks
from jaxrl.loggers.eval_log import EvalLog
from jaxrl.policies import files
from jaxrl.types import EnvSpec, PyTree


@dataclass
class Member:
    """An ordinary run has one member, which is all of it."""

    config: TrainConfig
    spec: EnvSpec
    folder: Path
    outputs: list[sinks.Sink]
    record: EvalLog
    iteration_log: sinks.Sink  # what is noted for every iteration
    best: float = -math.inf
    best_at: int = -1  # cycles
    episodes: int = 0  # finished, before a resume included
    last_evaluation: dict[str, float] = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)  # R_loss, R_fit of the epoch's cycles
    recent: list[float] = field(default_factory=list)  # losses of as many cycles as judge a reward
    score: float = -math.inf  # what "best" is measured by
    scored_at: int = -1  # cycles
    nonfinite_steps: int = 0  # steps of this cycle in which an environment was non-finite
    skipped_updates: int = 0  # non-finite updates, before a resume included
    nonfinite_streak: int = 0  # consecutive non-finite updates
    lost: bool = False  # of a population that goes on: too many of them

    def env_steps(self, cycles: int) -> int:
        """Environment steps after so many cycles: Python integers cannot overflow."""
        return cycles * self.config.iterations * self.config.steps_per_iteration

    def log(self, cycles: int, values: dict[str, float]) -> None:
        """Write what is known of a cycle."""
        for write in self.outputs:
            write(self.env_steps(cycles), values)

    def evaluated(
        self, result: Episodes, summary: dict[str, float], policy: PyTree, cycles: int
    ) -> dict[str, float]:
        """Log an evaluation, save the policy if it is the best so far, and return the metrics."""
        self.record.add(self.env_steps(cycles), result)
        self.last_evaluation = summary
        self.keep_if_best(policy, cycles, self.last_evaluation["eval/mean_reward"])
        return self.last_evaluation | {"eval/best_mean_reward": self.best}

    def average_losses(self, values: dict[str, float], *, epoch_ends: bool) -> None:
        """Note the loss of a learnt reward; at an epoch's end add its mean."""
        if "train/R_loss" not in values:
            return
        self.losses.append([values["train/R_loss"], values["train/R_fit"]])
        if not epoch_ends:
            return
        loss, fit = (mean(each) for each in zip(*self.losses, strict=True))
        values["train/R_loss_epoch"], values["train/R_fit_epoch"] = loss, fit
        self.losses = []

    def loss_of_cycles(self, values: dict[str, float], number: int) -> float | None:
        """Note a cycle's loss; return the mean of the last `number`, once there are as many."""
        kind = "train/R_fit" if self.config.offpolicy.rrd_bias_correction else "train/R_loss"
        self.recent = [*self.recent, values[kind]][-number:] if kind in values else []
        return mean(self.recent) if len(self.recent) == number else None

    def keep_if_best(self, policy: PyTree, cycles: int, score: float) -> None:
        """Write the networks if no score was higher."""
        if self.scores(score, cycles):
            self.save_networks(policy, cycles, "best")

    def scores(self, score: float, cycles: int) -> bool:
        """Note what "best" is measured by; tell whether it was never higher."""
        self.score, self.scored_at = score, cycles
        if math.isfinite(score) and score > self.best:
            self.best, self.best_at = score, cycles
            return True
        return False

    def save_networks(self, policy: PyTree, cycles: int, name: str) -> None:
        """Write policies/<name>.npz, or rewards/<name>.npz where a reward is all that is learnt."""
        info = {"env": self.config.env, "env_steps": self.env_steps(cycles)} | self.last_evaluation
        kind = "rewards" if self.config.offline else "policies"
        path = self.folder / kind / f"{name}.npz"
        network = algorithms.network_config(self.config)
        files.write(path, policy, self.spec, network, info)

    def memory(self) -> dict[str, Any]:
        """Return what a resumed run must know of this one, as JSON values."""
        return {
            "best": self.best if math.isfinite(self.best) else None,
            "episodes": self.episodes,
            "skipped_updates": self.skipped_updates,
            "losses": [_without_nan(pair) for pair in self.losses],
            "recent": _without_nan(self.recent),
            "last_evaluation": {k: v for k, v in self.last_evaluation.items() if math.isfinite(v)},
        }

    def remember(self, memory: dict[str, Any]) -> None:
        """Take up what was known before a resume."""
        best = memory.get("best")
        self.best = -math.inf if best is None else best
        self.episodes = memory.get("episodes", 0)
        self.skipped_updates = memory.get("skipped_updates", 0)
        self.losses = [_with_nan(pair) for pair in memory.get("losses", [])]
        self.recent = _with_nan(memory.get("recent", []))
        self.last_evaluation = memory.get("last_evaluation", {})


def _without_nan(values: list[float]) -> list[float | None]:
    """Replace what JSON cannot hold: a loss that diverged must not keep the state from the disk."""
    return [value if math.isfinite(value) else None for value in values]


def _with_nan(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
