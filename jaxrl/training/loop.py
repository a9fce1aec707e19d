"""The host loop: the only place with side effects.

epoch            evaluate, checkpoint, best policy
└─ cycle         one compiled call, one row of the log
   └─ iteration  one train_step
      └─ train batch   one gradient update
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import TrainConfig, env_names, variants
from jaxrl.loggers import lock_file, sinks
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers.console import Console
from jaxrl.loggers.eval_log import EvalLog
from jaxrl.programs import device, gymnasium, memory_estimate, offline
from jaxrl.programs.program import Program
from jaxrl.training import cycle, finalize, nan_guard, recovery, signals, warm_start
from jaxrl.training import resume as starting
from jaxrl.training.callback_runner import CallbackRunner
from jaxrl.training.member import Member
from jaxrl.training.resume import InitialState
from jaxrl.training.run import Run
from jaxrl.training.summary import Result
from jaxrl.training.warm_start import WarmStart
from jaxrl.types import TrainState
from jaxrl.utils import profiling, sharding


def train(
    program: Program,
    folder: Path,
    *,
    resume: bool = False,
    begins: InitialState | WarmStart | None = None,
    hooks: CallbackRunner | None = None,
    extra_sinks: Sequence[sinks.Sink] = (),
) -> Result:
    """Train in `folder` until done or asked to stop.

    A new run begins with nothing learnt, or with what it was given of another one. `extra_sinks`
    receive the rows of the log besides those of --log.
    """
    began, config = time.monotonic(), program.config
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(folders.locked(folder))
        stop = stack.enter_context(signals.listening())
        checkpoints = stack.enter_context(
            CheckpointManager(folder / "checkpoints", keep_last=config.checkpoint.keep_last)
        )
        console = Console(config.total_iterations * config.steps_per_iteration)
        stack.callback(console.close)
        start, programs = _start(program, folder, checkpoints, console, resume, begins)
        if isinstance(programs, gymnasium.GymnasiumExecutor | offline.OfflineExecutor):
            stack.callback(programs.close)
        outputs = _Outputs(console, checkpoints, stack, extra_sinks)
        run = _run(program, folder, start, programs, outputs, resume)
        run.began, run.hooks, run.lock = began, hooks or CallbackRunner(), lock
        cycles = starting.iterations_of(start.state) // config.iterations
        state, cycles = _train_cycles(run, start.state, cycles, stop)
        return finalize.finish(run, state, cycles, stop)


class _Outputs(NamedTuple):
    """Where a run writes, and who closes it."""

    console: Console
    checkpoints: CheckpointManager
    stack: contextlib.ExitStack
    extra_sinks: Sequence[sinks.Sink] = ()


def _run(
    program: Program, folder: Path, start: InitialState, programs: Any, to: _Outputs, resume: bool
) -> Run:
    """Put the host's side of a run together, with what it remembered before a resume."""
    config, iterations = program.config, starting.iterations_of(start.state)

    def member(config: TrainConfig, folder: Path, memory: dict, *also: sinks.Sink) -> Member:
        resumed_at = iterations * config.steps_per_iteration if resume else None
        outputs = sinks.open_sinks(config, folder, to.stack, resumed_at)
        made = Member(
            config=config,
            spec=program.env.spec,
            folder=folder,
            outputs=[*outputs, *also],
            record=EvalLog(folder / "evaluations.npz", resumed_at),
            iteration_log=sinks.by_iteration(folder, to.stack, iterations, resume),
        )
        made.remember(memory)
        for sink in outputs:
            for remark in getattr(sink, "remarks", ()):
                to.console.say(f"warning: {remark}")
        for remark in made.record.remarks:
            to.console.say(f"warning: {remark}")
        return made

    top = member(config, folder, start.memory, to.console, *to.extra_sinks)
    remembered = start.memory.get("members", [{}] * len(program.members))
    places = folders.of_members(folder, program.members)
    # The whole population is one run of a tracking service, not one for each member.
    quiet = [replace(c, log=replace(c.log, wandb=False)) for c in program.members]
    members = [member(*each) for each in zip(quiet, places, remembered, strict=True)]
    return Run(
        program=program,
        console=to.console,
        checkpoints=to.checkpoints,
        members=members or [top],
        programs=programs,
        overview=top if members else None,
        earlier=start.memory.get("elapsed", 0.0),
    )


def _start(
    program: Program,
    folder: Path,
    checkpoints: CheckpointManager,
    console: Console,
    resume: bool,
    begins: InitialState | WarmStart | None,
) -> tuple[InitialState, Any]:
    """Return the state to go on from, and the programs, unless nothing is left to do."""
    config = program.config
    if resume and not starting.never_saved(config, checkpoints, folder):
        start = starting.resumed(program, checkpoints)
        # From here on an interrupted continuation must know how long it was to be.
        folders.write_settings(folder, config, program.members)
        if starting.iterations_of(start.state) >= config.total_iterations:
            console.say("This run has reached its end; a larger --epochs would continue it.")
            return _said(start, console), None
    else:
        begins = warm_start.learnt(program) if resume else begins
        start = begins if isinstance(begins, InitialState) else None
        if start:
            starting.keep_first(program, checkpoints, start.state)
        folders.describe(folder, config, program.members)
        if resume:
            console.say("This run had not come to its first checkpoint: it starts over.")
    console.say(_compiling(program))
    if config.offline:
        programs = offline.OfflineExecutor(program)
    elif env_names.is_hosted(config.env):
        cycles = starting.iterations_of(start.state) // config.iterations if start else 0
        programs = gymnasium.GymnasiumExecutor(program, cycles)
    else:
        programs = device.compile_programs(program)
    if start is None:
        start = InitialState(programs.first_state(), {}, [])
        if isinstance(begins, WarmStart):
            start = warm_start.given(start.state, begins)
            starting.keep_first(program, checkpoints, start.state)
    return _said(start, console), programs


def _compiling(program: Program) -> str:
    number = f" of {variants.number(program.members)}" if program.members else ""
    devices = sharding.in_words(program.mesh)
    return f"compiling the training program{number} for {program.config.env}, {devices} ..."


def _said(start: InitialState, console: Console) -> InitialState:
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
    if run.config.checkpoint.replay and (kept := memory_estimate.num_bytes(state.collector.replay)):
        run.console.say(
            f"each checkpoint holds {memory_estimate.megabytes(kept)} of replay: "
            "--checkpoint.no-replay leaves it out, and a resume is then not exact"
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
            rows = cycle.note(run, metrics, cycles)
            state = cycle.complete(run, state, cycles, rows, time.monotonic() - began)
            run.check_lock()
            recovery.check(run, state, cycles, rows)
            state, values = cycle.evaluate_and_tell(run, state, cycles, rows)
            cycle.log_and_save(run, state, cycles, rows, values)
        run.tell("training_end", cycles)
    except (
        finalize.TrainingDiverged,
        nan_guard.EnvironmentBroke,
        recovery.RunFolderLost,
        lock_file.LockLost,
    ):
        raise
    except Exception as error:
        finalize.rescue(run, state, cycles, error)
        raise
    return state, cycles
