"""How a run ends: done, asked to stop, or broken; and what it leaves behind."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict, replace

import jax

from jaxrl.checkpoint.snapshot import CheckpointError
from jaxrl.config import TrainConfig, serialization, variants
from jaxrl.errors import UserError, first_line
from jaxrl.loggers import sinks
from jaxrl.reports import load_runs, pages, plots
from jaxrl.training import nan_guard, overview, recovery
from jaxrl.training.callback_runner import best_or_none
from jaxrl.training.run import Member, Run
from jaxrl.training.summary import Result, resume_command
from jaxrl.types import TrainState
from jaxrl.utils import processes, signals


def emergency_save(run: Run, state: TrainState, cycles: int, error: Exception) -> None:
    """After an unexpected error, save the state if that is safe, and say what remains."""
    run.console.close()
    where = f"Training stopped at step {run.env_steps(cycles):,}"
    if processes.count() > 1:  # saving is done together, and the others may know of no error
        error.add_note(f"{where}; the state was not saved.")
        return
    if gone := recovery.missing(run):
        _save_elsewhere(run, state, cycles, error, f"{where}: {gone} was deleted during the run.")
        return
    try:
        run.check_lock()
        if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
            raise RuntimeError("the failed cycle had donated it")
        if run.logged_at < cycles:
            raise RuntimeError("its cycle was not logged yet, and would be missing after a resume")
        run.save(state, cycles, block=True)
        error.add_note(f"{where}; the state was saved.")
    except Exception as failure:
        same = isinstance(error, CheckpointError) and isinstance(failure, CheckpointError)
        why = " for the same reason" if same else f": {failure}"
        error.add_note(f"{where}; the state was not saved{why}.")
    if run.checkpoints.steps():
        error.add_note(f"Continue with: {resume_command(run.folder, run.config)}")


def _save_elsewhere(run: Run, state: TrainState, cycles: int, error: Exception, where: str) -> None:
    try:
        error.add_note(f"{where} {recovery.save_elsewhere(run, state, cycles)}")
    except Exception as failure:
        error.add_note(f"{where} It could not be saved elsewhere: {failure}.")


def was_cut_short(run: Run) -> bool:
    """Tell whether a run was killed after its last checkpoint, before all else was written."""
    complete = all(any(member.folder.glob("*/final.npz")) for member in run.members)
    return bool(processes.of_main("" if complete else "cut short"))


def finish(run: Run, state: TrainState, cycles: int, stop: signals.StopRequest) -> Result:
    """Save what a run leaves behind; a run that did nothing leaves everything as it was."""
    run.console.close()
    if run.logged_at == cycles:
        run.check_lock()
        recovery.check(run, state, cycles)
        run.save(state, cycles, block=True)
        for member, networks in zip(run.members, run.networks(state), strict=True):
            member.save_networks(networks, cycles, "final")
        if processes.is_main():
            _describe_all(run)
    failure = processes.of_main(str(run.callbacks.failure or ""))
    if failure and not run.callbacks.failure:
        raise UserError(f"process 0: {failure}")
    if run.callbacks.failure:
        if run.logged_at == cycles:
            next_command = resume_command(run.folder, run.config)
            run.callbacks.failure.add_note(f"The state was saved; continue with: {next_command}")
        raise run.callbacks.failure
    if run.logged_at == cycles:
        nan_guard.check_end(run, cycles)
    result = _result(run, run.top, cycles, stop)
    if run.overview:
        members = tuple(_result(run, member, cycles, stop) for member in run.members)
        returns = [m.last_evaluation.get("eval/mean_reward", math.nan) for m in members]
        configs = run.program.members
        evaluated = run.top.last_evaluation
        iqm = overview.lines(configs, returns, each=False) if evaluated else []
        number = variants.number(configs)
        nonfinite = sum(member.nonfinite_steps for member in members)
        result = replace(
            result, members=members, number=number, iqm=tuple(iqm), nonfinite_steps=nonfinite
        )
    return result


def _describe_all(run: Run) -> None:
    """Write what a person looks at when all is done; all that a resume needs is saved by now."""
    for member in run.members:
        _describe(run, member)
        _upload(run, member)
    if run.overview:
        with _optional(run, f"plots of {run.folder}"):
            plots.population_curve(run.folder, run.program.members, _title(run.config))
    for line in run.program.write_report(run.folder):
        print(line)
    _write_report(run)


def _result(run: Run, member: Member, cycles: int, stop: signals.StopRequest) -> Result:
    return Result(
        folder=member.folder,
        env_steps=member.env_steps(cycles),
        best_reward=best_or_none(member.best),
        last_evaluation=member.last_evaluation,
        stopped_by=stop.signal,
        stopped_because=run.callbacks.stopped,
        nonfinite_steps=member.all_nonfinite_steps,
    )


def _describe(run: Run, member: Member) -> None:
    """Write TensorBoard's hyperparameters and the plots of a member."""
    if member.config.log.tensorboard and member.last_evaluation:
        settings = serialization.flatten(asdict(member.config))
        sinks.hyperparameters(member.folder / "tensorboard", settings, member.last_evaluation)
    with _optional(run, f"plots of {member.folder}"):
        plots.learning_curve(member.folder, _title(member.config))
        plots.learning_phases(member.folder, member.config)


def _upload(run: Run, member: Member) -> None:
    """Send the final policy to tracking services, whose failure must not fail the run."""
    file = member.folder / "policies" / "final.npz"
    for upload in run.top.sinks.uploads if file.exists() else ():
        try:
            upload(file)
        except Exception as error:
            run.console.warn(f"{file} was not uploaded: {first_line(error)}")


@contextlib.contextmanager
def _optional(run: Run, what: str) -> Iterator[None]:
    """Let an error of the disk be a warning."""
    try:
        yield
    except OSError as error:
        run.console.warn(f"{what} were not written: {first_line(error)}")


def _title(config: TrainConfig) -> str:
    return ": ".join(dict.fromkeys([config.preset, config.env]))  # often the same


def _write_report(run: Run) -> None:
    """Write pages, which must not fail the run: all that matters is saved by now.

    Seeds that share a program have one each, and one that takes them together.
    """
    for folder in dict.fromkeys([run.folder, *(member.folder for member in run.members)]):
        try:
            pages.write(load_runs.find([folder]), folder / pages.NAME)
        except Exception as error:
            run.console.warn(f"{folder / pages.NAME} was not written: {error}")
