"""The host's side of a run: when what is due, and what becomes of the state."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import jax

from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import TrainConfig
from jaxrl.evaluation import episodes as evaluation
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers.console import Console
from jaxrl.loggers.lock_file import HeartbeatLock
from jaxrl.programs.device import DeviceExecutor
from jaxrl.programs.gymnasium import GymnasiumExecutor
from jaxrl.programs.offline import OfflineExecutor
from jaxrl.programs.program import Program
from jaxrl.training import curriculum, resume
from jaxrl.training.callback_runner import CallbackContext, CallbackRunner, best_or_none
from jaxrl.training.member import Member
from jaxrl.types import PyTree, TrainState


@dataclass
class Run:
    """One run. Cycles are counted from the beginning of the run, resumed or not."""

    program: Program
    console: Console
    checkpoints: CheckpointManager
    members: list[Member]
    programs: (
        DeviceExecutor | GymnasiumExecutor | OfflineExecutor | None
    )  # None when nothing is left to do
    overview: Member | None = None  # of a population: all members together
    hooks: CallbackRunner = field(default_factory=CallbackRunner)  # callbacks of the user's own
    lock: HeartbeatLock | None = None  # None: the kernel holds it
    earlier: float = 0.0  # seconds spent before a resume
    began: float = field(default_factory=time.monotonic)
    compile_seconds: float = 0.0
    logged_at: int = -1  # cycles

    @property
    def top(self) -> Member:
        """What stands for the whole run."""
        return self.overview or self.members[0]

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.top.folder

    @property
    def config(self) -> TrainConfig:
        """The settings of the run."""
        return self.program.config

    @property
    def elapsed(self) -> float:
        """Seconds of the whole run, compilation and evaluation included."""
        return self.earlier + time.monotonic() - self.began

    def check_lock(self) -> None:
        """Raise if another process has taken over the run folder."""
        if self.lock:
            self.lock.check()

    def env_steps(self, cycles: int) -> int:
        """Environment steps after so many cycles."""
        return self.top.env_steps(cycles)

    @property
    def ended(self) -> bool:
        """Whether a callback has asked to stop, or failed."""
        return bool(self.hooks.stopped or self.hooks.failure)

    @property
    def in_trouble(self) -> bool:
        """Whether a member's gradients were not finite a moment ago."""
        return any(member.nonfinite_streak and not member.lost for member in self.members)

    def tell(self, event: str, cycles: int, values: Mapping[str, float] | None = None) -> None:
        """Tell callbacks what has happened; they get copies."""
        moment = CallbackContext(
            event=event,
            step=self.env_steps(cycles),
            cycle=cycles,
            epoch=math.ceil(cycles / self.config.cycles),
            elapsed=self.elapsed,
            metrics=MappingProxyType(dict(values or {})),
            evaluation=MappingProxyType(dict(self.top.last_evaluation)),
            best=best_or_none(self.top.best),
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

    def networks(self, state: TrainState) -> list[PyTree]:
        """Return what every member has learnt to act by, on the host."""
        learnt = self.program.algorithm.policy_params(state.learner)
        return self.program.each(jax.device_get(learnt))

    def evaluate(
        self, state: TrainState, cycles: int
    ) -> tuple[list[Episodes], list[dict[str, float]]]:
        """Measure every member's policy and keep those that are the best so far."""
        params = self.program.algorithm.policy_params(state.learner)
        played = jax.device_get(self.programs.evaluate(params, cycles))  # type: ignore[union-attr]
        results = self.program.each(played)
        found = [
            member.evaluated(result, evaluation.summarize(result, self.program.env), policy, cycles)
            for member, result, policy in zip(
                self.members, results, self.networks(state), strict=True
            )
        ]
        self._warn_of_nonfinite(found)
        return results, found

    def resample(
        self, state: TrainState, cycles: int, evaluated: list[Episodes] | None
    ) -> tuple[TrainState, list[dict[str, float]]]:
        """Change what start states are drawn by, where that is due; return what to log of it."""
        return curriculum.resampled(self.program, self.programs, state, cycles, evaluated)

    def _warn_of_nonfinite(self, found: list[dict[str, float]]) -> None:
        """Say that episodes of an evaluation ended in non-finite values, or that returns are."""
        for member, values in zip(self.members, found, strict=True):
            who = f"{member.folder.name}: " if self.overview else ""
            if number := int(values.get("eval/diverged", 0)):
                self.console.say(
                    f"warning: {who}{number:,} episodes of the evaluation ended in non-finite "
                    "values (eval/diverged)"
                )
            if not math.isfinite(values["eval/mean_reward"]):
                self.console.say(f"warning: {who}the mean return of the evaluation is not finite")

    def save(self, state: TrainState, cycles: int, *, block: bool = False) -> None:
        """Write a checkpoint of the full state."""
        metadata = {
            "elapsed": self.elapsed,
            "devices": self.program.mesh.size,
            **resume.all_settings(self.program),
            **self.top.memory(),
        }
        if self.overview:
            metadata["members"] = [member.memory() for member in self.members]
        state = resume.to_keep(self.config, state)
        # A state that was not evaluated must not pass for the one evaluated before it.
        metric = self.top.score if self.top.scored_at == cycles else None
        self.checkpoints.save(self.env_steps(cycles), state, metadata, metric=metric, block=block)
