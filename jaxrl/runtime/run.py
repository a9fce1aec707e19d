"""The host's side of one run: where results go, and what was best so far."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from types import MappingProxyType

import jax

from jaxrl.algorithms import build as algorithms
from jaxrl.config import TrainConfig
from jaxrl.runtime import curriculum, evaluation, network_files, sinks, starting
from jaxrl.runtime.checkpoint import Checkpoints
from jaxrl.runtime.compiled import Programs
from jaxrl.runtime.console import Console
from jaxrl.runtime.hooks import Hooks, Moment, best_or_none
from jaxrl.runtime.hosted import HostPrograms
from jaxrl.runtime.offline import OfflinePrograms
from jaxrl.runtime.program import Program
from jaxrl.runtime.records import EvaluationRecord
from jaxrl.types import TrainState


@dataclass
class Run:
    """One run. Cycles are counted from the beginning of the run, resumed or not."""

    program: Program
    folder: Path
    console: Console
    checkpoints: Checkpoints
    outputs: list[sinks.Sink]
    record: EvaluationRecord
    programs: Programs | HostPrograms | OfflinePrograms | None  # None when nothing is left to do
    iteration_log: sinks.Sink  # what is noted for every iteration
    hooks: Hooks = field(default_factory=Hooks)  # callbacks of the user's own
    best: float = -math.inf
    best_at: int = -1  # cycles
    earlier: float = 0.0  # seconds spent before a resume
    began: float = field(default_factory=time.monotonic)
    episodes: int = 0  # finished, before a resume included
    compile_seconds: float = 0.0
    last_evaluation: dict[str, float] = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)  # R_loss, R_fit of the epoch's cycles
    score: float = -math.inf  # what "best" is measured by
    scored_at: int = -1  # cycles
    logged_at: int = -1  # cycles

    @property
    def config(self) -> TrainConfig:
        """The settings of the run."""
        return self.program.config

    @property
    def elapsed(self) -> float:
        """Seconds of the whole run, compilation and evaluation included."""
        return self.earlier + time.monotonic() - self.began

    def env_steps(self, cycles: int) -> int:
        """Environment steps after so many cycles: Python integers cannot overflow."""
        return cycles * self.config.iterations * self.config.steps_per_iteration

    @property
    def ended(self) -> bool:
        """Whether a callback has asked to stop, or failed."""
        return bool(self.hooks.stopped or self.hooks.failure)

    def tell(self, event: str, cycles: int, values: Mapping[str, float] | None = None) -> None:
        """Tell callbacks what has happened; they get copies."""
        moment = Moment(
            event=event,
            step=self.env_steps(cycles),
            cycle=cycles,
            epoch=math.ceil(cycles / self.config.cycles),
            elapsed=self.elapsed,
            metrics=MappingProxyType(dict(values or {})),
            evaluation=MappingProxyType(dict(self.last_evaluation)),
            best=best_or_none(self.best),
            folder=self.folder,
            config=self.config,
        )
        self.hooks.tell(moment)

    def is_epoch_end(self, cycles: int) -> bool:
        """Tell whether an epoch ends here; the last one may be short."""
        return cycles % self.config.cycles == 0 or cycles == self.config.total_cycles

    def is_due_for_evaluation(self, cycles: int) -> bool:
        """Tell whether to evaluate here."""
        every = self.config.eval.every
        due = self.is_epoch_end(cycles) or bool(every and cycles % every == 0)
        return bool(self.config.eval.num_envs) and due

    def is_due_for_saving(self, cycles: int) -> bool:
        """Tell whether to save the full state here; the end of the run is saved anyway."""
        epoch = math.ceil(cycles / self.config.cycles)
        return self.is_epoch_end(cycles) and epoch % self.config.checkpoint.save_freq == 0

    def evaluate(self, state: TrainState, cycles: int) -> tuple[TrainState, dict[str, float]]:
        """Measure the policy and keep it if it is the best so far.

        The state is the same, but for what its start states are drawn by.
        """
        params = self.program.algorithm.policy_params(state.learner)
        result = jax.device_get(self.programs.evaluate(params, cycles))  # type: ignore[union-attr]
        self.record.add(self.env_steps(cycles), result)
        self.last_evaluation = evaluation.summarize(result)
        self._keep_if_best(state, cycles, self.last_evaluation["eval/mean_reward"])
        values = self.last_evaluation | {"eval/best_mean_reward": self.best}
        if curriculum.changes(self.program) and curriculum.is_due(self.config, cycles):
            state, changed = curriculum.updated(self.program, state, result)
            values |= changed
        return state, values

    def average_losses(self, state: TrainState, cycles: int, values: dict[str, float]) -> None:
        """Note the loss of a learnt reward; at an epoch's end, add its mean to the values."""
        if "train/R_loss" not in values:
            return
        self.losses.append([values["train/R_loss"], values["train/R_fit"]])
        if self.is_epoch_end(cycles):
            loss, fit = (mean(each) for each in zip(*self.losses, strict=True))
            values["train/R_loss_epoch"], values["train/R_fit_epoch"] = loss, fit
            self.losses = []
            if self.config.offline:  # there is no other measure of what is best
                minimised = fit if self.config.offpolicy.rrd_bias_correction else loss
                self._keep_if_best(state, cycles, -minimised)

    def _keep_if_best(self, state: TrainState, cycles: int, score: float) -> None:
        self.score, self.scored_at = score, cycles
        if math.isfinite(score) and score > self.best:
            self.best, self.best_at = score, cycles
            self.save_networks(state, cycles, "best")

    def save_networks(self, state: TrainState, cycles: int, name: str) -> None:
        """Write policies/<name>.npz, or rewards/<name>.npz where a reward is all that is learnt."""
        info = {"env": self.config.env, "env_steps": self.env_steps(cycles)} | self.last_evaluation
        params = jax.device_get(self.program.algorithm.policy_params(state.learner))
        kind = "rewards" if self.config.offline else "policies"
        path = self.folder / kind / f"{name}.npz"
        network = algorithms.network_config(self.config)
        network_files.write(path, params, self.program.env.spec, network, info)

    def save(self, state: TrainState, cycles: int, *, block: bool = False) -> None:
        """Write a checkpoint of the full state."""
        metadata = {
            "best": self.best if math.isfinite(self.best) else None,
            "elapsed": self.elapsed,
            "episodes": self.episodes,
            "losses": self.losses,
            "last_evaluation": {k: v for k, v in self.last_evaluation.items() if math.isfinite(v)},
            "settings": starting.settings(self.config),
            "devices": self.program.mesh.size,
        }
        state = starting.to_keep(self.config, state)
        # A state that was not evaluated must not pass for the one evaluated before it.
        metric = self.score if self.scored_at == cycles else None
        self.checkpoints.save(self.env_steps(cycles), state, metadata, metric=metric, block=block)
