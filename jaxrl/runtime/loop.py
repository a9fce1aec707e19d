"""The host loop: the only place with side effects.

epoch            evaluate, checkpoint, best policy
└─ cycle         one compiled call, one row of the log
   └─ iteration  one train_step
      └─ train batch   one gradient update
"""

import contextlib
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from jaxrl import config_json
from jaxrl.envs import names
from jaxrl.errors import UserError
from jaxrl.runtime import (
    compiled,
    files,
    hosted,
    offline,
    plots,
    profiling,
    reward_files,
    signals,
    sinks,
    sizes,
    starting,
)
from jaxrl.runtime import folder as folders
from jaxrl.runtime.checkpoint import Checkpoints
from jaxrl.runtime.console import Console
from jaxrl.runtime.program import EACH, Program
from jaxrl.runtime.records import EvaluationRecord
from jaxrl.runtime.run import Run
from jaxrl.runtime.summary import Result
from jaxrl.types import Mean, Metrics, TrainState

_REMEDIES = {
    True: "Try a lower --ppo.learning-rate, --ppo.max-grad-norm, or --ppo.normalize-reward.",
    False: "Try lower learning rates (--offpolicy.q-lr, r-lr), or --offpolicy.reward-scale.",
}


class TrainingDiverged(UserError):
    """Gradients stayed non-finite; the last good checkpoint was kept."""


def train(program: Program, folder: Path, *, resume: bool = False) -> Result:
    """Train in `folder` until done or asked to stop."""
    began, config = time.monotonic(), program.config
    with contextlib.ExitStack() as stack:
        stack.enter_context(folders.locked(folder))
        stop = stack.enter_context(signals.listening())
        checkpoints = stack.enter_context(
            Checkpoints(folder / "checkpoints", keep_last=config.checkpoint.keep_last)
        )
        console = Console(config.total_iterations * config.steps_per_iteration)
        stack.callback(console.close)
        start, programs = _start(program, folder, checkpoints, console, resume)
        if isinstance(programs, hosted.HostPrograms | offline.OfflinePrograms):
            stack.callback(programs.close)
        cycles = int(start.state.iteration) // config.iterations
        step = cycles * config.iterations * config.steps_per_iteration
        resumed_at = step if resume else None
        run = Run(
            program=program,
            folder=folder,
            console=console,
            checkpoints=checkpoints,
            outputs=[*sinks.open_sinks(config, folder, stack, resumed_at), console],
            record=EvaluationRecord(folder / "evaluations.npz", resumed_at),
            programs=programs,
            iteration_log=sinks.by_iteration(folder, stack, cycles * config.iterations, resume),
            best=-math.inf if start.memory.get("best") is None else start.memory["best"],
            earlier=start.memory.get("elapsed", 0.0),
            episodes=start.memory.get("episodes", 0),
            losses=start.memory.get("losses", []),
            began=began,
            last_evaluation=start.memory.get("last_evaluation", {}),
        )
        state, cycles = _train_cycles(run, start.state, cycles, stop)
        return _finish(run, state, cycles, stop)


def _start(
    program: Program, folder: Path, checkpoints: Checkpoints, console: Console, resume: bool
) -> tuple[starting.Start, Any]:
    """Return the state to go on from, and the programs, unless nothing is left to do."""
    config = program.config
    if resume and not starting.never_saved(config, checkpoints, folder):
        start = starting.resumed(program, checkpoints)
        # From here on an interrupted continuation must know how long it was to be.
        files.write_text(folder / "config.json", config_json.to_json(config))
        for remark in start.remarks:
            console.say(remark)
        if int(start.state.iteration) >= config.total_iterations:
            console.say("This run has reached its end; a larger --epochs would continue it.")
            return start, None
    else:
        start = None
        folders.describe(folder, config)
        if resume:
            console.say("This run had not come to its first checkpoint: it starts over.")
    console.say(f"compiling the training program for {config.env} ...")
    if config.offline:
        programs = offline.OfflinePrograms(program)
    elif names.is_hosted(config.env):
        cycles = int(start.state.iteration) // config.iterations if start else 0
        programs = hosted.HostPrograms(program, cycles)
    else:
        programs = compiled.compile_programs(program)
    return start or starting.Start(programs.first_state(), {}, []), programs


def _train_cycles(
    run: Run, state: TrainState, cycles: int, stop: signals.StopRequest
) -> tuple[TrainState, int]:
    """Run cycles until the end, or until asked to stop."""
    if run.programs is None:
        return state, cycles
    run.programs.wait()
    run.compile_seconds = time.monotonic() - run.began
    run.console.say(f"compiled in {run.compile_seconds:.1f} s")
    if run.config.checkpoint.replay and (kept := sizes.num_bytes(state.collector.replay)):
        run.console.say(
            f"each checkpoint holds {sizes.megabytes(kept)} of replay: --checkpoint.no-replay "
            "leaves it out, and a resume is then not exact"
        )
    run.console.training_begins(run.env_steps(cycles))
    profiled = profiling.chosen_cycle(cycles, run.config.total_cycles)
    profiled = profiled if run.config.profile else None
    try:
        while cycles < run.config.total_cycles and not stop:
            began = time.monotonic()
            with profiling.trace(run.folder / "profile", when=cycles == profiled):
                state, metrics = run.programs.train(state, cycles)
                metrics = jax.device_get(metrics)
            cycles += 1
            values = _note(run, metrics, cycles)
            state = _measure(run, state, cycles, values, time.monotonic() - began)
            _log_and_save(run, state, cycles, values)
    except TrainingDiverged:
        raise
    except Exception as error:
        _rescue(run, state, cycles, error)
        raise
    return state, cycles


def _note(run: Run, metrics: Metrics, cycles: int) -> dict[str, float]:
    """Count episodes, log what is known of single iterations, and return the cycle's means."""
    if "rollout/ep_rew_mean" in metrics:
        run.episodes += int(metrics["rollout/ep_rew_mean"].count)
    each = {name for name in metrics if name.startswith(EACH)}
    for name in each:
        _log_iterations(run, name.removeprefix(EACH), metrics[name], cycles)
    return _finished({name: mean for name, mean in metrics.items() if name not in each})


def _log_iterations(run: Run, name: str, means: Mean, cycles: int) -> None:
    """Write one line for each iteration of the cycle that has just ended."""
    first = (cycles - 1) * run.config.iterations + 1
    for i, (total, count) in enumerate(zip(means.total, means.count, strict=True)):
        if count > 0:
            run.iteration_log(first + i, {name: float(total / count)})


def _finished(metrics: Metrics) -> dict[str, float]:
    """Finish the means; a metric without data has no row."""
    return {k: float(m.total / m.count) for k, m in sorted(metrics.items()) if m.count > 0}


def _measure(
    run: Run, state: TrainState, cycles: int, values: dict[str, float], seconds: float
) -> TrainState:
    """Complete the values of a cycle, and at the right moments evaluate; return the state after."""
    config, step = run.config, run.env_steps(cycles)
    _stop_if_diverged(run, values, step, int(state.learner.bad_streak))
    # Learners that wait for enough to learn from count their own.
    planned = cycles * config.iterations * config.learning.updates
    values["train/n_updates"] = int(getattr(state.learner, "updates", planned))
    values["train/n_skipped"] = int(state.learner.skipped)
    values["time/fps"] = config.iterations * config.steps_per_iteration / seconds
    agents = run.program.env.rows // config.num_envs
    if agents > 1:
        values["time/agent_fps"] = agents * values["time/fps"]
    values["time/cycle_seconds"] = seconds
    values["time/compile_seconds"] = run.compile_seconds
    values["time/epoch"] = math.ceil(cycles / config.cycles)
    values["time/cycle"] = cycles
    values["rollout/episodes"] = run.episodes
    values["time/total_timesteps"] = step
    values["time/iterations"] = cycles * config.iterations
    values["time/memory_mb"] = _memory_in_use()
    run.average_losses(state, cycles, values)
    if run.is_due_for_evaluation(cycles):
        began = time.monotonic()
        state, found = run.evaluate(state, cycles)
        values |= found
        values["time/eval_seconds"] = time.monotonic() - began
    values["time/time_elapsed"] = run.elapsed
    return state


def _log_and_save(run: Run, state: TrainState, cycles: int, values: dict[str, float]) -> None:
    """Write what is known of a cycle, and at the right moments the state."""
    for write in run.outputs:
        write(run.env_steps(cycles), values)
    run.logged_at = cycles
    # In the midst of bad gradients nothing is saved: good checkpoints must not be pushed out.
    if run.is_due_for_saving(cycles) and not int(state.learner.bad_streak):
        run.save(state, cycles)


def _stop_if_diverged(run: Run, values: dict[str, float], step: int, streak: int) -> None:
    if streak < run.config.learning.max_bad_updates:
        return
    broken = [n for n, v in values.items() if n.startswith("train/") and not math.isfinite(v)]
    run.checkpoints.wait()
    saved = run.checkpoints.steps()
    kept = f"The checkpoint at step {max(saved):,} is untouched." if saved else "No checkpoint yet."
    raise TrainingDiverged(
        f"Training stopped at step {step:,}: gradients were not finite for {streak} updates in a "
        f"row (not finite: {', '.join(broken[:3]) or 'train/grad_norm'}). {kept} "
        f"{_REMEDIES[run.config.algo == 'ppo']}"
    )


def _rescue(run: Run, state: TrainState, cycles: int, error: Exception) -> None:
    """After an unexpected error, save the state if that is safe, and say what remains."""
    run.console.close()
    where = f"Training stopped at step {run.env_steps(cycles):,}"
    try:
        if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
            raise RuntimeError("the failed cycle had used it up")
        if run.logged_at < cycles:
            raise RuntimeError("its cycle was not logged yet, and would be missing after a resume")
        run.save(state, cycles, block=True)
        error.add_note(f"{where}; the state was saved.")
    except Exception as failure:
        error.add_note(f"{where}; the state was not saved: {failure}.")
    if run.checkpoints.steps():
        error.add_note(f"Continue with: python -m jaxrl.train --resume {run.folder}")


def _finish(run: Run, state: TrainState, cycles: int, stop: signals.StopRequest) -> Result:
    """Save what a run leaves behind; a run that did nothing leaves everything as it was."""
    run.console.close()
    if run.logged_at == cycles:
        run.save(state, cycles, block=True)
        run.save_networks(state, cycles, "final")
        if run.config.log.tensorboard and run.last_evaluation:
            settings = config_json.flatten(asdict(run.config))
            sinks.hyperparameters(run.folder / "tensorboard", settings, run.last_evaluation)
        title = dict.fromkeys([run.config.preset, run.config.env])  # often the same
        plots.learning_curve(run.folder, ": ".join(title))
        if run.config.offline and run.program.env.held_out:
            found = reward_files.report(run.folder, run.program.env)
            print(f"held-out episodes: correlation of rewards {found['pearson']:.3f}")
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
