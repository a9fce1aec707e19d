"""The host loop: the only place with side effects.

epoch            evaluate, checkpoint, best policy
└─ cycle         one compiled call, one row of the log
   └─ iteration  one train_step
      └─ train batch   one gradient update
"""

import contextlib
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl import config_json
from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.runtime import evaluation, plots, policies, signals, sinks
from jaxrl.runtime import folder as folders
from jaxrl.runtime import program as programs
from jaxrl.runtime.checkpoint import Checkpoints
from jaxrl.runtime.console import Console
from jaxrl.runtime.program import Program
from jaxrl.runtime.records import EvaluationRecord
from jaxrl.types import Metrics, TrainState


class TrainingDiverged(UserError):
    """Gradients stayed non-finite; the last good checkpoint was kept."""


@dataclass
class Result:
    """What a run reached."""

    folder: Path
    env_steps: int
    best_reward: float | None
    last_evaluation: dict[str, float]
    stopped_by: int | None = None  # signal number, when asked to stop


@dataclass
class _Run:
    """One run's host side: where results go and what was best so far."""

    program: Program
    folder: Path
    console: Console
    checkpoints: Checkpoints
    outputs: list[sinks.Sink]
    record: EvaluationRecord
    evaluate: Any
    best: float = -math.inf
    earlier: float = 0.0  # seconds spent before a resume
    began: float = field(default_factory=time.monotonic)
    compile_seconds: float = 0.0
    last_evaluation: dict[str, float] = field(default_factory=dict)

    @property
    def config(self) -> TrainConfig:
        return self.program.config

    @property
    def elapsed(self) -> float:
        """Seconds of the whole run, compilation and evaluation included."""
        return self.earlier + time.monotonic() - self.began

    def env_steps(self, cycles: int) -> int:
        """Environment steps after so many cycles: Python integers cannot overflow."""
        return cycles * self.config.iterations * self.config.steps_per_iteration

    def is_epoch_end(self, cycles: int) -> bool:
        return cycles % self.config.cycles == 0 or cycles == self.config.total_cycles

    def is_due_for_evaluation(self, cycles: int) -> bool:
        every = self.config.eval.every
        return self.is_epoch_end(cycles) or bool(every and cycles % every == 0)

    def is_due_for_saving(self, cycles: int) -> bool:
        epoch = math.ceil(cycles / self.config.cycles)
        last = cycles == self.config.total_cycles
        return last or (self.is_epoch_end(cycles) and epoch % self.config.checkpoint.save_freq == 0)


def train(program: Program, folder: Path, *, resume: bool = False) -> Result:
    """Train in `folder` until done or asked to stop."""
    began = time.monotonic()
    config = program.config
    with contextlib.ExitStack() as stack:
        stack.enter_context(folders.locked(folder))
        stop = stack.enter_context(signals.listening())
        total = config.total_iterations * config.steps_per_iteration
        checkpoints = stack.enter_context(
            Checkpoints(folder / "checkpoints", keep_last=config.checkpoint.keep_last)
        )
        state, metadata = _starting_state(program, checkpoints, resume)
        cycles = int(state.iteration) // config.iterations
        start = cycles * config.iterations * config.steps_per_iteration
        console = Console(total, start)
        stack.callback(console.close)
        resumed_at = start if resume else None
        run = _Run(
            program=program,
            folder=folder,
            console=console,
            checkpoints=checkpoints,
            outputs=[*sinks.open_sinks(config, folder, stack, resumed_at), console],
            record=EvaluationRecord(folder / "evaluations.npz", resumed_at),
            evaluate=_evaluator(program),
            best=-math.inf if metadata.get("best") is None else metadata["best"],
            earlier=metadata.get("elapsed", 0.0),
            began=began,
        )
        for warning in metadata.get("warnings", []):
            console.say(f"warning: {warning}")
        return _finish(run, *_train_cycles(run, state, cycles, stop), stop)


def _evaluator(program: Program):
    settings = program.config.eval
    if not settings.num_envs:
        return None
    return programs.evaluator(program, settings.num_envs, settings.deterministic)


def _starting_state(
    program: Program, checkpoints: Checkpoints, resume: bool
) -> tuple[TrainState, dict]:
    """Return a fresh or a restored state, and what the host remembered beside it."""
    if not resume:
        key = jax.random.key(program.config.seed)
        return programs.initial_state(program, jax.random.fold_in(key, 0)), {}
    restored = checkpoints.restore(programs.abstract_state(program))
    state = restored.state
    # A longer run moves the end of the schedules, nothing else.
    total = np.int32(program.config.total_iterations)
    place = state.learner.total_iterations.sharding
    learner = state.learner.replace(total_iterations=jax.device_put(total, place))
    return state.replace(learner=learner), restored.metadata | {"warnings": restored.warnings}


def _train_cycles(
    run: _Run, state: TrainState, cycles: int, stop: signals.StopRequest
) -> tuple[TrainState, int]:
    """Run cycles until the end, or until asked to stop."""
    if cycles >= run.config.total_cycles:
        run.console.say("This run has reached its end; a larger --epochs would continue it.")
        return state, cycles
    run.console.say(f"compiling the training program for {run.config.env} ...")
    step, seconds = programs.compile_cycle(run.program, state)
    run.compile_seconds = seconds
    run.console.say(f"compiled in {seconds:.1f} s")
    run.console.training_begins()
    try:
        while cycles < run.config.total_cycles and not stop:
            began = time.monotonic()
            state, metrics = step(state)
            values = _to_host(metrics)
            cycles += 1
            _after_cycle(run, state, cycles, values, time.monotonic() - began)
    except TrainingDiverged:
        raise
    except Exception as error:
        _rescue(run, state, cycles, error)
        raise
    return state, cycles


def _to_host(metrics: Metrics) -> dict[str, float]:
    """Finish the means; a metric without data has no row."""
    pairs = jax.device_get(metrics)
    return {k: float(m.total / m.count) for k, m in sorted(pairs.items()) if m.count > 0}


def _after_cycle(
    run: _Run, state: TrainState, cycles: int, values: dict[str, float], seconds: float
) -> None:
    """Log, and at the right moments evaluate and save."""
    config, step = run.config, run.env_steps(cycles)
    _stop_if_diverged(run, values, step)
    values["time/fps"] = config.iterations * config.steps_per_iteration / seconds
    values["time/cycle_seconds"] = seconds
    values["time/compile_seconds"] = run.compile_seconds
    values["time/total_timesteps"] = step
    values["time/iterations"] = cycles * config.iterations
    values["time/memory_mb"] = _memory_in_use()
    updates = config.ppo.update_epochs * config.ppo.num_minibatches
    values["train/n_updates"] = cycles * config.iterations * updates
    if run.evaluate is not None and run.is_due_for_evaluation(cycles):
        began = time.monotonic()
        values |= _evaluate(run, state, cycles)
        values["time/eval_seconds"] = time.monotonic() - began
    values["time/time_elapsed"] = run.elapsed
    for write in run.outputs:
        write(step, values)
    if run.is_due_for_saving(cycles):
        _save(run, state, cycles)


def _stop_if_diverged(run: _Run, values: dict[str, float], step: int) -> None:
    streak = values.get("train/bad_streak", 0.0)
    if not streak >= run.config.log.max_bad_updates:
        return
    # Losses come first: an infinite return is where it began, a loss is where it hurt.
    named = sorted(values, key=lambda name: not name.startswith("train/"))
    culprits = [name for name in named if not math.isfinite(values[name])]
    run.checkpoints.wait()
    saved = run.checkpoints.steps()
    kept = f"The checkpoint at step {max(saved):,} is untouched." if saved else "No checkpoint yet."
    raise TrainingDiverged(
        f"Training stopped at step {step:,}: gradients were not finite for {streak:.0f} updates in "
        f"a row (first seen in {culprits[0] if culprits else 'train/grad_norm'}). {kept} "
        "Try a lower --ppo.learning-rate, --ppo.max-grad-norm, or --ppo.normalize-reward."
    )


def _evaluate(run: _Run, state: TrainState, cycles: int) -> dict[str, float]:
    """Measure the policy and keep it if it is the best so far."""
    key = jax.random.fold_in(jax.random.key(run.config.seed), 1)
    params = run.program.algorithm.policy_params(state.learner)
    result = jax.device_get(run.evaluate(params, jax.random.fold_in(key, cycles)))
    run.record.add(run.env_steps(cycles), result)
    run.last_evaluation = evaluation.summarize(result)
    mean = run.last_evaluation["eval/mean_reward"]
    if math.isfinite(mean) and mean > run.best:
        run.best = mean
        _save_policy(run, state, cycles, "best")
    return run.last_evaluation | {"eval/best_mean_reward": run.best}


def _save_policy(run: _Run, state: TrainState, cycles: int, name: str) -> None:
    info = {"env": run.config.env, "env_steps": run.env_steps(cycles)} | run.last_evaluation
    params = jax.device_get(run.program.algorithm.policy_params(state.learner))
    path = run.folder / "policies" / f"{name}.npz"
    policies.save_policy(path, params, run.program.env.spec, run.config.network, info)


def _save(run: _Run, state: TrainState, cycles: int, *, block: bool = False) -> None:
    metadata = {
        "best": run.best if math.isfinite(run.best) else None,
        "elapsed": run.elapsed,
        "cycles": cycles,
    }
    metric = run.last_evaluation.get("eval/mean_reward")
    run.checkpoints.save(run.env_steps(cycles), state, metadata, metric=metric, block=block)


def _rescue(run: _Run, state: TrainState, cycles: int, error: Exception) -> None:
    """After an unexpected error, save the state if it is still whole, and say what remains."""
    run.console.close()
    where = f"Training stopped at step {run.env_steps(cycles):,}"
    try:
        if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
            raise RuntimeError("the failed cycle had used up the state")
        _save(run, state, cycles, block=True)
        error.add_note(f"{where}; the state was saved.")
    except Exception as failure:
        error.add_note(f"{where}; the state could not be saved: {failure}")
    if run.checkpoints.steps():
        error.add_note(f"Continue with: python -m jaxrl.train --resume {run.folder}")


def _finish(run: _Run, state: TrainState, cycles: int, stop: signals.StopRequest) -> Result:
    """Save what a run leaves behind."""
    run.console.close()
    _save(run, state, cycles, block=True)
    _save_policy(run, state, cycles, "final")
    if run.config.log.tensorboard and run.last_evaluation:
        settings = config_json.flatten(asdict(run.config))
        sinks.hyperparameters(run.folder / "tensorboard", settings, run.last_evaluation)
    plots.learning_curve(run.folder, f"{run.config.preset}: {run.config.env}")
    return Result(
        folder=run.folder,
        env_steps=run.env_steps(cycles),
        best_reward=run.best if math.isfinite(run.best) else None,
        last_evaluation=run.last_evaluation,
        stopped_by=stop.signal,
    )


def _memory_in_use() -> float:
    """Return MiB in use: on the busiest device, or by this process where devices do not tell."""
    stats = [d.memory_stats() for d in jax.local_devices()]
    used = [s["bytes_in_use"] for s in stats if s and "bytes_in_use" in s]
    if used:
        return max(used) / 2**20
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
    return math.nan
