"""The host loop: the only place with side effects.

epoch            evaluate, checkpoint, best policy
└─ cycle         one compiled call, one row of the log
   └─ iteration  one train_step
      └─ train batch   one gradient update
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from jaxrl.callbacks import RecordVideo
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import TrainConfig, variants
from jaxrl.errors import TrainingStopped, UserError
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers import sinks
from jaxrl.loggers.console import NORMAL, SILENT, Console
from jaxrl.loggers.eval_log import EvalLog
from jaxrl.loggers.lock_file import HeartbeatLock
from jaxrl.loggers.monitor import Monitor
from jaxrl.loggers.sinks import Sink
from jaxrl.programs import Executor, Program, memory_estimate
from jaxrl.training import cycle, finalize, forecast, recovery, resume, warm_start
from jaxrl.training.callback_runner import CallbackRunner
from jaxrl.training.resume import InitialState
from jaxrl.training.run import Exchange, Member, Run
from jaxrl.training.summary import Result, resume_command
from jaxrl.training.warm_start import WarmStart
from jaxrl.types import TrainState
from jaxrl.utils import processes, profiling, sharding, signals

_VIDEO_SECONDS = 5  # of --log.video-epochs


def train(
    program: Program,
    folder: Path,
    *,
    resuming: bool = False,
    start: InitialState | WarmStart | None = None,
    executor: Executor | None = None,
    callbacks: CallbackRunner | None = None,
    own_sinks: Sequence[Sink] = (),
    exchange: Exchange | None = None,
    verbose: int = NORMAL,
) -> Result:
    """Train in `folder` until the end of the run, or until a signal or a callback stops it.

    Args:
      program: what to train.
      folder: the run folder.
      resuming: continue from the newest checkpoint of the folder.
      start: the state or parameters of another run to start from.
      executor: `program.start()`, where compiling has begun before.
      callbacks: called between cycles.
      own_sinks: called with every row, beside those that the settings name.
      exchange: called before the first cycle and after evaluations, with the state of all
        members; returns another.
      verbose: 0, 1 or 2; see `Console`.
    """
    began, config = time.monotonic(), program.config
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(_locked(folder))
        stop = stack.enter_context(signals.listening())
        stop.at_once = "preparing, before any training"
        checkpoints = stack.enter_context(
            CheckpointManager(folder / "checkpoints", keep=config.checkpoint.keep)
        )
        console = Console(
            config, verbose if processes.is_main() else SILENT, members=len(program.members)
        )
        stack.callback(console.close)
        called_here = own_sinks if processes.is_main() else ()
        writers = _Writers(folder, console, checkpoints, stack, called_here)
        processes.resume_command = resume_command(folder, config)
        initial = _restore_or_prepare(program, writers, resuming, start)
        cycles = resume.cycles_of(program, initial)
        if cycles < config.total_cycles:
            stop.at_once = "compiling, before any training"
            console.compiling(_compiling(program, folder))
            executor = executor or program.start(cycles)
            stack.callback(executor.close)
            initial = _with_state(program, executor, checkpoints, initial)
        assert isinstance(initial, InitialState)  # a new run has cycles to train
        for warning in initial.warnings:
            console.warn(warning)
        for remark in initial.remarks:
            console.say(remark)
        run = _make_run(program, writers, initial, resuming)
        # Callbacks are called on process 0; what they ask for, all do.
        called = callbacks if processes.is_main() else None
        run.began, run.callbacks, run.lock = began, called or CallbackRunner(), lock
        run.exchange = exchange
        every = program.config.log.video_epochs
        if every and processes.is_main():
            run.callbacks.add(RecordVideo(every, seconds=_VIDEO_SECONDS))
        state = initial.state
        if exchange and cycles == 0:
            state, _ = exchange(state, 0, [])
        if cycles < config.total_cycles and executor is not None:
            state, cycles = _train_cycles(run, executor, state, cycles, stop)
        else:
            stop.at_once = ""
            more = "--epochs" if config.total_steps is None else "--total-steps"
            console.say(f"This run has reached its end; a larger {more} would continue it.")
            if finalize.was_cut_short(run):
                run.logged_at = cycles
        return finalize.finish(run, state, cycles, stop)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[HeartbeatLock | None]:
    """Lock the run folder; of several processes, process 0 locks it for all."""
    with contextlib.ExitStack() as stack:
        lock, error = None, ""
        if processes.is_main():
            try:
                lock = stack.enter_context(folders.locked(folder))
            except UserError as failure:
                error = str(failure)
        processes.raise_together(error)
        yield lock


class _Writers(NamedTuple):
    """Where a run writes, and what closes it."""

    folder: Path
    console: Console
    checkpoints: CheckpointManager
    stack: contextlib.ExitStack
    sinks: Sequence[Sink]


def _restore_or_prepare(
    program: Program, to: _Writers, resuming: bool, start: InitialState | WarmStart | None
) -> InitialState | WarmStart | None:
    """Restore the newest checkpoint, or prepare the folder of a new run."""
    config = program.config
    # Only process 0 looks: others may see an older state of a shared disk, or remember it.
    begun = resuming and processes.is_main()
    begun = begun and not resume.never_saved(config, to.checkpoints, to.folder)
    if processes.of_main("begun" if begun else ""):
        restored = resume.restore(program, to.checkpoints)
        if not processes.is_main():
            return restored
        # From here on an interrupted continuation must know how long it was to be.
        folders.write_settings(to.folder, config, program.members)
        if resume.cycles_of(program, restored) < config.total_cycles:
            folders.add_command(to.folder, program.members)
        return restored
    start = warm_start.load(program) if resuming else start
    if isinstance(start, InitialState):
        resume.save_first(program, to.checkpoints, start.state)
    if processes.is_main():
        folders.describe(to.folder, config, program.members)
    if resuming:
        to.console.say("No checkpoint found; starting from scratch.")
    return start


def _with_state(
    program: Program,
    executor: Executor,
    checkpoints: CheckpointManager,
    start: InitialState | WarmStart | None,
) -> InitialState:
    """Return the state to start from: a new one has the parameters of a warm start."""
    if isinstance(start, InitialState):
        return start
    state = executor.init_state()
    if start is None:
        return InitialState(state, {})
    initial = warm_start.apply(state, start)
    resume.save_first(program, checkpoints, initial.state)
    return initial


def _make_run(program: Program, to: _Writers, initial: InitialState, resuming: bool) -> Run:
    """Compose the host's side of a run, with what was saved before a resume."""
    config, iterations = program.config, resume.iterations_of(initial.state)

    def member(config: TrainConfig, folder: Path, saved: dict, *also: Sink) -> Member:
        made = Member(config=config, spec=program.spec, info=program.info, folder=folder)
        made.load_state_dict(saved)
        if processes.is_main():  # the others write nothing
            resumed_at = iterations * config.steps_per_iteration if resuming else None
            opened = sinks.open_sinks(config, folder, to.stack, resumed_at)
            made.sinks = opened._replace(cycle=[*opened.cycle, *also])
            made.eval_log = EvalLog(folder / "evaluations.npz", resumed_at)
            if config.log.episodes and program.records_episodes:
                made.monitor = Monitor(folder, config.env, to.stack, resumed_at)
            for writer in (*opened.cycle, made.eval_log):
                for remark in getattr(writer, "remarks", ()):
                    to.console.warn(remark)
        return made

    top = member(config, to.folder, initial.metadata, to.console, *to.sinks)
    saved = initial.metadata.get("members", [{}] * len(program.members))
    places = folders.of_members(to.folder, program.members)
    # The whole population is one run of a tracking service or sink, not one for each member.
    silent = {"wandb": False, "mlflow": False, "sink": None}
    quiet = [replace(c, log=replace(c.log, **silent)) for c in program.members]
    members = [member(*each) for each in zip(quiet, places, saved, strict=True)]
    return Run(
        program=program,
        console=to.console,
        checkpoints=to.checkpoints,
        members=members or [top],
        overview=top if members else None,
        earlier=initial.metadata.get("elapsed", 0.0),
    )


def _compiling(program: Program, folder: Path) -> str:
    number = f" of {variants.number(program.members)}" if program.members else ""
    devices = sharding.describe(program.mesh)
    what = f"compiling the training program{number} for {program.config.env}, {devices}"
    return f"{what} ({forecast.compilation(program, folder.parent)}) ..."


def _asked_to_stop(run: Run, stop: signals.StopRequest) -> bool:
    """Tell whether a process has had a signal, or a callback wants to stop."""
    asked = processes.largest(2 * (stop.signal or 0) + run.stop_requested)
    if asked > 1:
        stop.signal = asked // 2
    return bool(asked)


def _train_cycles(
    run: Run, executor: Executor, state: TrainState, cycles: int, stop: signals.StopRequest
) -> tuple[TrainState, int]:
    """Run cycles until the end, or until a signal or a callback stops the run."""
    executor.wait()
    stop.at_once = ""
    run.compile_seconds = time.monotonic() - run.began
    run.console.say(f"compiled in {run.compile_seconds:.1f} s")
    if run.config.checkpoint.replay and (size := memory_estimate.num_bytes(state.collector.replay)):
        run.console.say(
            f"each checkpoint holds {memory_estimate.megabytes(size)} of replay: "
            "--checkpoint.no-replay leaves it out, and a resume is then not exact"
        )
    run.console.training_begins(run.env_steps(cycles))
    profiled = profiling.chosen_cycle(cycles, run.config.total_cycles)
    profiled = profiled if run.config.profile and processes.is_main() else None
    try:
        run.emit("training_start", cycles)
        while cycles < run.config.total_cycles and not _asked_to_stop(run, stop):
            began = time.monotonic()
            with profiling.trace(run.folder / "profile", when=cycles == profiled):
                state, metrics = executor.run_cycle(state, cycles)
                metrics = processes.fetch(metrics)
            cycles += 1
            rows = cycle.reduce_metrics(run, metrics, cycles)
            state = cycle.finish_metrics(run, state, cycles, rows, time.monotonic() - began)
            run.check_lock()
            recovery.check(run, state, cycles, rows)
            state, whole = cycle.evaluate_and_emit(run, executor, state, cycles, rows)
            cycle.log_and_save(run, state, cycles, rows, whole)
        run.emit("training_end", cycles)
    except TrainingStopped:
        raise
    except Exception as error:
        if processes.lost_contact(error):
            processes.wait_for_watch()
        finalize.emergency_save(run, state, cycles, error)
        raise
    return state, cycles
