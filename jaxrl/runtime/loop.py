"""The host loop: the only place with side effects.

epoch            evaluate, checkpoint, best policy
└─ cycle         one compiled call, one row of the log
   └─ iteration  one train_step
      └─ train batch   one gradient update
"""

import contextlib
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl import config_json
from jaxrl.envs import names
from jaxrl.runtime import (
    broken_report,
    compiled,
    curriculum,
    ending,
    files,
    hosted,
    inheriting,
    memory,
    offline,
    profiling,
    signals,
    sinks,
    sizes,
    starting,
)
from jaxrl.runtime import folder as folders
from jaxrl.runtime.checkpoint import Checkpoints
from jaxrl.runtime.console import Console
from jaxrl.runtime.hooks import Hooks
from jaxrl.runtime.inheriting import Learnt
from jaxrl.runtime.program import EACH, Program
from jaxrl.runtime.records import EvaluationRecord
from jaxrl.runtime.run import Run
from jaxrl.runtime.starting import Start
from jaxrl.runtime.summary import Result
from jaxrl.types import Mean, Metrics, TrainState


def train(
    program: Program,
    folder: Path,
    *,
    resume: bool = False,
    begins: Start | Learnt | None = None,
    hooks: Hooks | None = None,
) -> Result:
    """Train in `folder` until done or asked to stop.

    A new run begins with nothing learnt, or with what it was given of another one.
    """
    began, config = time.monotonic(), program.config
    with contextlib.ExitStack() as stack:
        stack.enter_context(folders.locked(folder))
        stop = stack.enter_context(signals.listening())
        checkpoints = stack.enter_context(
            Checkpoints(folder / "checkpoints", keep_last=config.checkpoint.keep_last)
        )
        console = Console(config.total_iterations * config.steps_per_iteration)
        stack.callback(console.close)
        start, programs = _start(program, folder, checkpoints, console, resume, begins)
        if isinstance(programs, hosted.HostPrograms | offline.OfflinePrograms):
            stack.callback(programs.close)
        outputs = _Outputs(console, checkpoints, stack)
        run = _run(program, folder, start, programs, outputs, resume)
        run.began, run.hooks = began, hooks or Hooks()
        cycles = int(start.state.iteration) // config.iterations
        state, cycles = _train_cycles(run, start.state, cycles, stop)
        return ending.finish(run, state, cycles, stop)


class _Outputs(NamedTuple):
    """Where a run writes, and who closes it."""

    console: Console
    checkpoints: Checkpoints
    stack: contextlib.ExitStack


def _run(
    program: Program, folder: Path, start: Start, programs: Any, to: _Outputs, resume: bool
) -> Run:
    """Put the host's side of a run together, with what it remembered before a resume."""
    config, memory_of = program.config, start.memory.get
    iterations = int(start.state.iteration)
    resumed_at = iterations * config.steps_per_iteration if resume else None
    return Run(
        program=program,
        folder=folder,
        console=to.console,
        checkpoints=to.checkpoints,
        outputs=[*sinks.open_sinks(config, folder, to.stack, resumed_at), to.console],
        record=EvaluationRecord(folder / "evaluations.npz", resumed_at),
        programs=programs,
        iteration_log=sinks.by_iteration(folder, to.stack, iterations, resume),
        best=-math.inf if memory_of("best") is None else start.memory["best"],
        earlier=memory_of("elapsed", 0.0),
        episodes=memory_of("episodes", 0),
        losses=memory_of("losses", []),
        last_evaluation=memory_of("last_evaluation", {}),
    )


def _start(
    program: Program,
    folder: Path,
    checkpoints: Checkpoints,
    console: Console,
    resume: bool,
    begins: Start | Learnt | None,
) -> tuple[Start, Any]:
    """Return the state to go on from, and the programs, unless nothing is left to do."""
    config = program.config
    if resume and not starting.never_saved(config, checkpoints, folder):
        start = starting.resumed(program, checkpoints)
        # From here on an interrupted continuation must know how long it was to be.
        files.write_text(folder / "config.json", config_json.to_json(config))
        if int(start.state.iteration) >= config.total_iterations:
            console.say("This run has reached its end; a larger --epochs would continue it.")
            return _said(start, console), None
    else:
        begins = inheriting.learnt(program) if resume else begins
        start = begins if isinstance(begins, Start) else None
        if start:
            starting.keep_first(program, checkpoints, start.state)
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
    if start is None:
        start = Start(programs.first_state(), {}, [])
        if isinstance(begins, Learnt):
            start = inheriting.given(start.state, begins)
            starting.keep_first(program, checkpoints, start.state)
    return _said(start, console), programs


def _said(start: Start, console: Console) -> Start:
    """Tell the user what is to be known of a start."""
    for remark in start.remarks:
        console.say(remark)
    return start


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
        run.tell("training_start", cycles)
        while cycles < run.config.total_cycles and not (stop or run.ended):
            began = time.monotonic()
            with profiling.trace(run.folder / "profile", when=cycles == profiled):
                state, metrics = run.programs.train(state, cycles)
                metrics = jax.device_get(metrics)
            cycles += 1
            values = _note(run, metrics, cycles)
            state, changed = curriculum.after_cycle(run.program, state, values)
            values |= changed
            state = _measure(run, state, cycles, values, time.monotonic() - began)
            _log_and_save(run, state, cycles, values)
        run.tell("training_end", cycles)
    except (ending.TrainingDiverged, broken_report.EnvironmentBroke):
        raise
    except Exception as error:
        ending.rescue(run, state, cycles, error)
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
    broken_report.stop_if_broken(run.program, state, run.folder)
    ending.stop_if_diverged(run, values, step, int(state.learner.bad_streak))
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
    values |= memory.in_use()
    run.average_losses(state, cycles, values)
    return _evaluate_and_tell(run, state, cycles, values)


def _evaluate_and_tell(
    run: Run, state: TrainState, cycles: int, values: dict[str, float]
) -> TrainState:
    """Evaluate where that is due or asked for, and tell callbacks what has happened."""
    run.hooks.new_cycle()
    run.tell("cycle", cycles, values)
    if run.is_due_for_evaluation(cycles) or run.hooks.evaluate:
        began = time.monotonic()
        state, found = run.evaluate(state, cycles)
        values |= found
        values["time/eval_seconds"] = time.monotonic() - began
        run.tell("evaluation", cycles, values)
    if run.best_at == cycles:
        run.tell("new_best", cycles, values)
    if run.is_epoch_end(cycles):
        run.tell("epoch", cycles, values)
    values["time/time_elapsed"] = run.elapsed
    run.tell("log", cycles, values)
    values |= run.hooks.log
    return state


def _log_and_save(run: Run, state: TrainState, cycles: int, values: dict[str, float]) -> None:
    """Write what is known of a cycle, and at the right moments the state."""
    for write in run.outputs:
        write(run.env_steps(cycles), values)
    run.logged_at = cycles
    # In the midst of bad gradients nothing is saved: good checkpoints must not be pushed out.
    if (run.is_due_for_saving(cycles) or run.hooks.save) and not int(state.learner.bad_streak):
        run.save(state, cycles)
