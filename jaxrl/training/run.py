"""The host's side of a run: its members, when something is due, and saving."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.policy import zero_policy
from jaxrl.callbacks import CallbackContext
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import TrainConfig
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers.console import Console
from jaxrl.loggers.eval_log import EvalLog
from jaxrl.loggers.lock_file import HeartbeatLock
from jaxrl.loggers.monitor import Monitor
from jaxrl.loggers.sinks import Sinks
from jaxrl.policies import files
from jaxrl.programs import Executor, Program
from jaxrl.training import resume
from jaxrl.training.callback_runner import CallbackRunner, best_or_none
from jaxrl.types import EnvSpec, PyTree, TrainState
from jaxrl.utils import processes
from jaxrl.utils.utilization import Utilization

Row = dict[str, float]
# (state, cycles, rows of all members) -> (state, new metrics of all members).
Exchange = Callable[[TrainState, int, list[Row]], tuple[TrainState, list[Row]]]


@dataclass
class Member:
    """One member of a run: its sinks, counters and best score. Most runs have one member."""

    config: TrainConfig
    spec: EnvSpec
    folder: Path
    sinks: Sinks = Sinks([], [])  # none of these on processes other than the first
    eval_log: EvalLog | None = None
    monitor: Monitor | None = None  # of every training episode
    info: dict[str, Any] = field(default_factory=dict)  # of the program, for files of networks
    best: float = -math.inf
    best_at: int = -1  # cycles
    episodes: int = 0  # finished, before a resume included
    last_evaluation: Row = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)  # R_loss, R_fit of the epoch's cycles
    recent: list[float] = field(default_factory=list)  # losses that score a reward
    score: float = -math.inf  # what "best" is measured by
    scored_at: int = -1  # cycles
    nonfinite_steps: int = 0  # steps of this cycle in which an environment was non-finite
    all_nonfinite_steps: int = 0  # of all cycles, before a resume included
    skipped_updates: int = 0  # non-finite updates, before a resume included
    nonfinite_streak: int = 0  # consecutive non-finite updates
    diverged: bool = False  # of a population that goes on: too many of them

    def env_steps(self, cycles: int) -> int:
        """Return the environment steps of N cycles: Python integers cannot overflow."""
        return cycles * self.config.iterations * self.config.steps_per_iteration

    def log(self, cycles: int, row: Row) -> None:
        """Write the metrics of a cycle."""
        for write in self.sinks.cycle:
            write(self.env_steps(cycles), row)

    def add_evaluation(
        self, result: Episodes, metrics: Row, networks: dict[str, PyTree], cycles: int
    ) -> Row:
        """Log an evaluation, save the networks if they are the best so far; return the metrics."""
        if self.eval_log:
            self.eval_log.add(self.env_steps(cycles), result)
        self.last_evaluation = metrics
        self.save_if_best(networks, cycles, self.last_evaluation["eval/mean_reward"])
        return self.last_evaluation | {"eval/best_mean_reward": self.best}

    def average_losses(self, row: Row, *, epoch_ends: bool) -> None:
        """Store the loss of a learnt reward; at an epoch's end add the mean to the row."""
        if "train/R_loss" not in row:
            return
        self.losses.append([row["train/R_loss"], row["train/R_fit"]])
        if not epoch_ends:
            return
        loss, fit = (mean(each) for each in zip(*self.losses, strict=True))
        row["train/R_loss_epoch"], row["train/R_fit_epoch"] = loss, fit
        self.losses = []

    def windowed_loss(self, row: Row, window: int) -> float | None:
        """Store a cycle's loss; return the mean of the last `window`, once there are as many."""
        name = "train/R_fit" if self.config.rrd.bias_correction else "train/R_loss"
        self.recent = [*self.recent, row[name]][-window:] if name in row else []
        return mean(self.recent) if len(self.recent) == window else None

    def save_if_best(self, networks: dict[str, PyTree], cycles: int, score: float) -> None:
        """Write the networks if no score was higher."""
        if self.set_score(score, cycles):
            self.save_networks(networks, cycles, "best")

    def set_score(self, score: float, cycles: int) -> bool:
        """Store the score of this cycle; tell whether it is the highest so far."""
        self.score, self.scored_at = score, cycles
        if math.isfinite(score) and score > self.best:
            self.best, self.best_at = score, cycles
            return True
        return False

    def save_networks(self, networks: dict[str, PyTree], cycles: int, name: str) -> None:
        """Write policies/<name>.npz, and rewards/<name>.npz where a reward is learnt."""
        if not processes.is_main():
            return
        info = {"env": self.config.env, "env_steps": self.env_steps(cycles)}
        info |= self.info | self.last_evaluation
        config = algorithms.network_config(self.config)
        for folder, params in networks.items():
            files.write(self.folder / folder / f"{name}.npz", params, self.spec, config, info)

    def remove_networks(self, kept: set[str]) -> None:
        """Remove the networks of steps whose checkpoints are gone."""
        if not processes.is_main():
            return
        for file in self.folder.glob("*/*.npz"):
            named_by_step = file.parent.name in ("policies", "rewards") and file.stem.isdecimal()
            if named_by_step and file.stem not in kept:
                file.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run must know of this one, as JSON values."""
        return {
            "best": self.best if math.isfinite(self.best) else None,
            "episodes": self.episodes,
            "skipped_updates": self.skipped_updates,
            "nonfinite_steps": self.all_nonfinite_steps,
            "losses": [_without_nan(pair) for pair in self.losses],
            "recent": _without_nan(self.recent),
            "last_evaluation": {k: v for k, v in self.last_evaluation.items() if math.isfinite(v)},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what was saved with a checkpoint."""
        best = saved.get("best")
        self.best = -math.inf if best is None else best
        self.episodes = saved.get("episodes", 0)
        self.skipped_updates = saved.get("skipped_updates", 0)
        self.all_nonfinite_steps = saved.get("nonfinite_steps", 0)
        self.losses = [_with_nan(pair) for pair in saved.get("losses", [])]
        self.recent = _with_nan(saved.get("recent", []))
        self.last_evaluation = saved.get("last_evaluation", {})


def _without_nan(values: list[float]) -> list[float | None]:
    """Replace what JSON cannot hold: a loss that diverged must not keep the state from the disk."""
    return [value if math.isfinite(value) else None for value in values]


def _with_nan(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


@dataclass
class Run:
    """One run. Cycles are counted from the beginning of the run, resumed or not."""

    program: Program
    console: Console
    checkpoints: CheckpointManager
    members: list[Member]
    overview: Member | None = None  # of a population: all members together
    callbacks: CallbackRunner = field(default_factory=CallbackRunner)
    lock: HeartbeatLock | None = None  # None: the kernel holds it
    earlier: float = 0.0  # seconds spent before a resume
    began: float = field(default_factory=time.monotonic)
    compile_seconds: float = 0.0
    utilization: Utilization = field(default_factory=Utilization)
    logged_at: int = -1  # cycles
    exchange: Exchange | None = None  # between members
    baseline: list[Row] | None = None  # what each member's zero policy reaches; None: not played

    @property
    def top(self) -> Member:
        """The member that stands for the whole run."""
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
        """Return the environment steps of N cycles."""
        return self.top.env_steps(cycles)

    @property
    def stop_requested(self) -> bool:
        """Whether a callback has asked to stop, or failed."""
        return bool(self.callbacks.stopped or self.callbacks.failure)

    @property
    def is_diverging(self) -> bool:
        """Whether the last updates of a member that still trains were non-finite."""
        return any(member.nonfinite_streak and not member.diverged for member in self.members)

    def label(self, member: Member) -> str:
        """Return the name of a member for messages; "" where there is only one."""
        return f"{member.folder.name}: " if self.overview else ""

    def emit(self, event: str, cycles: int, row: Mapping[str, float] | None = None) -> None:
        """Call the callbacks of an event; they get copies."""
        context = CallbackContext(
            event=event,
            step=self.env_steps(cycles),
            cycle=cycles,
            epoch=math.ceil(cycles / self.config.cycles),
            elapsed=self.elapsed,
            metrics=MappingProxyType(dict(row or {})),
            evaluation=MappingProxyType(dict(self.top.last_evaluation)),
            best=best_or_none(self.top.best),
            folder=self.folder,
            config=self.config,
        )
        self.callbacks.emit(context)

    def is_due_for_evaluation(self, cycles: int) -> bool:
        """Tell whether to evaluate here."""
        settings = self.config.eval
        due = self.config.is_epoch_end(cycles) or bool(
            settings.every and cycles % settings.every == 0
        )
        return self.config.evaluates and (due or self._passes(settings.every_steps, cycles))

    def is_due_for_saving(self, cycles: int) -> bool:
        """Tell whether to save the full state here; the end of the run is saved anyway."""
        epoch, settings = math.ceil(cycles / self.config.cycles), self.config.checkpoint
        due = self.config.is_epoch_end(cycles) and epoch % settings.save_freq == 0
        return due or self._passes(settings.every_steps, cycles)

    def _passes(self, every: int, cycles: int) -> bool:
        """Tell whether the last cycle reached a multiple of `every` environment steps."""
        before, now = self.env_steps(cycles - 1), self.env_steps(cycles)
        return bool(every) and now // every > before // every

    def networks(self, state: TrainState) -> list[dict[str, PyTree]]:
        """Return what every member has learnt, on the CPU, by the folders of a run."""
        return self.program.split(processes.fetch(self.program.networks(state.learner)))

    def evaluate(
        self, executor: Executor, state: TrainState, cycles: int
    ) -> tuple[list[Episodes], list[Row]]:
        """Evaluate every member's policy; return the episodes and metrics of each."""
        params = self.program.policy_params(state.learner)
        played = executor.evaluate(params, cycles, state.curriculum)
        results = self.program.split(processes.fetch(played))
        if self.baseline is None:
            self.baseline = self._zero_policy(executor, params, cycles, state)
        rows = [
            member.add_evaluation(result, self.program.summarize(result) | zero, networks, cycles)
            for member, result, networks, zero in zip(
                self.members, results, self.networks(state), self.baseline, strict=True
            )
        ]
        return results, rows

    def _zero_policy(
        self, executor: Executor, params: PyTree, cycles: int, state: TrainState
    ) -> list[Row]:
        """Return what each member reaches in fixed trials with actions of zero, if it is compared.

        Where the trials change with the curriculum there is no one such figure.
        """
        program, config = self.program, self.config
        names = program.hooks.trial_criteria.values()
        fixed = bool(names) and program.hooks.shared_arrays is None
        continuous = not program.spec.action.discrete
        own_networks = config.network.module is not None  # their outputs need not be 0
        if not (fixed and continuous and config.eval.deterministic) or own_networks:
            return [{} for _ in self.members]
        played = executor.evaluate(zero_policy(params), cycles, state.curriculum)
        found = map(program.summarize, program.split(processes.fetch(played)))
        return [{f"{n}_zero": row[n] for n in names if n in row} for row in found]

    def save(self, state: TrainState, cycles: int, *, block: bool = False) -> None:
        """Write a checkpoint of the full state."""
        metadata = {
            "elapsed": self.elapsed,
            **resume.layout(self.program),
            **resume.all_settings(self.program),
            **self.top.state_dict(),
        }
        if self.overview:
            metadata["members"] = [member.state_dict() for member in self.members]
        whole, state = state, resume.checkpointed_part(self.config, state)
        # A state that was not evaluated must not pass for the one evaluated before it.
        metric = self.top.score if self.top.scored_at == cycles else None
        step = self.env_steps(cycles)
        for member, networks in zip(self.members, self.networks(whole), strict=True):
            member.save_networks(networks, cycles, str(step))
        self.checkpoints.save(step, state, metadata, metric=metric, block=block)
        kept = {str(step), *map(str, self.checkpoints.steps())}
        for member in self.members:
            member.remove_networks(kept)
