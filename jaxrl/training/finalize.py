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
from jaxrl.policies import reward_files
from jaxrl.reports import load_runs, pages, plots, population_plot
from jaxrl.training import overview, recovery, signals
from jaxrl.training.callback_runner import best_or_none
from jaxrl.training.member import Member
from jaxrl.training.run import Run
from jaxrl.training.summary import Result, again
from jaxrl.types import TrainState

_REMEDIES = {
    True: "Try a lower --ppo.learning-rate, --ppo.max-grad-norm, or --ppo.normalize-reward.",
    False: "Try lower learning rates (--offpolicy.q-lr, r-lr), or --offpolicy.reward-scale.",
}


class TrainingDiverged(UserError):
    """Gradients stayed non-finite; the last good checkpoint was kept."""


def stop_if_diverged(run: Run, rows: list[dict[str, float]], cycles: int) -> None:
    """Stop after too many consecutive non-finite updates; a population, when all members have.

    Until then a lost member goes on beside the others: its updates are skipped.
    """
    limit = run.config.learning.max_bad_updates
    for member in run.members:
        lost = member.nonfinite_streak >= limit
        if lost and not member.lost and len(run.members) > 1:
            run.console.say(_lost(member))
        member.lost = lost
    if all(member.lost for member in run.members):
        for member, row in zip(run.members, rows, strict=True):
            member.log(cycles, row | {"train/diverged": 1.0})  # reports must know how it ended
        raise _diverged(run, rows[0], cycles)


def warn_of_skipped(run: Run, member: Member, skipped: int) -> None:
    """Say in the cycle in which it happens that non-finite updates were skipped."""
    if (new := skipped - member.skipped_updates) > 0:
        who = f"{member.folder.name}: " if run.overview else ""
        run.console.say(
            f"warning: {who}{new:,} gradient updates of this cycle were non-finite and were "
            "skipped (train/n_skipped)"
        )
    member.skipped_updates = skipped


def _lost(member: Member) -> str:
    number = member.nonfinite_streak
    return f"warning: {member.folder.name} diverged: {number} consecutive non-finite updates"


def _refuse_diverged_end(run: Run, cycles: int) -> None:
    """Raise if the whole last iteration was non-finite; say it of single members."""
    limit = min(run.config.learning.max_bad_updates, run.config.learning.updates)
    lost = [member for member in run.members if member.nonfinite_streak >= limit]
    for member in lost if run.overview else ():
        run.console.say(_lost(member))
    if len(lost) == len(run.members):
        raise _diverged(run, {}, cycles)


def _diverged(run: Run, values: dict[str, float], cycles: int) -> TrainingDiverged:
    broken = [n for n, v in values.items() if n.startswith("train/") and not math.isfinite(v)]
    run.checkpoints.wait()
    saved = run.checkpoints.steps()
    kept = f"The checkpoint at step {max(saved):,} is untouched." if saved else "No checkpoint yet."
    return TrainingDiverged(
        f"Training diverged at step {run.env_steps(cycles):,}: {run.members[0].nonfinite_streak} "
        f"consecutive non-finite updates ({', '.join(broken[:3]) or 'train/grad_norm'}). {kept} "
        f"{_REMEDIES[run.config.algo == 'ppo']}"
    )


def rescue(run: Run, state: TrainState, cycles: int, error: Exception) -> None:
    """After an unexpected error, save the state if that is safe, and say what remains."""
    run.console.close()
    where = f"Training stopped at step {run.env_steps(cycles):,}"
    if gone := recovery.missing(run):
        _rescue_elsewhere(run, state, cycles, error, f"{where}: {gone} was deleted during the run.")
        return
    try:
        run.check_lock()
        if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
            raise RuntimeError("the failed cycle had used it up")
        if run.logged_at < cycles:
            raise RuntimeError("its cycle was not logged yet, and would be missing after a resume")
        run.save(state, cycles, block=True)
        error.add_note(f"{where}; the state was saved.")
    except Exception as failure:
        same = isinstance(error, CheckpointError) and isinstance(failure, CheckpointError)
        why = " for the same reason" if same else f": {failure}"
        error.add_note(f"{where}; the state was not saved{why}.")
    if run.checkpoints.steps():
        error.add_note(f"Continue with: {again(run.folder, run.config)}")


def _rescue_elsewhere(
    run: Run, state: TrainState, cycles: int, error: Exception, where: str
) -> None:
    try:
        error.add_note(f"{where} {recovery.save_elsewhere(run, state, cycles)}")
    except Exception as failure:
        error.add_note(f"{where} It could not be saved elsewhere: {failure}.")


def finish(run: Run, state: TrainState, cycles: int, stop: signals.StopRequest) -> Result:
    """Save what a run leaves behind; a run that did nothing leaves everything as it was."""
    run.console.close()
    if run.logged_at == cycles:
        run.check_lock()
        recovery.check(run, state, cycles)
        run.save(state, cycles, block=True)
        for member, policy in zip(run.members, run.networks(state), strict=True):
            member.save_networks(policy, cycles, "final")
            _describe(run, member)
        if run.overview:
            with _optional(run, f"plots of {run.folder}"):
                population_plot.curves(run.folder, run.program.members, _title(run.config))
        if run.config.offline and run.program.env.held_out:
            found = reward_files.report(run.folder, run.program.env)
            print(f"held-out episodes: correlation of rewards {found['pearson']:.3f}")
        _write_report(run)
    if run.hooks.failure:
        if run.logged_at == cycles:
            next_command = again(run.folder, run.config)
            run.hooks.failure.add_note(f"The state was saved; continue with: {next_command}")
        raise run.hooks.failure
    if run.logged_at == cycles:
        _refuse_diverged_end(run, cycles)
    result = _result(run, run.top, cycles, stop)
    if run.overview:
        members = tuple(_result(run, member, cycles, stop) for member in run.members)
        returns = [m.last_evaluation.get("eval/mean_reward", math.nan) for m in members]
        configs = run.program.members
        known = run.top.last_evaluation
        middle = overview.lines(configs, returns, each=False) if known else []
        number = variants.number(configs)
        result = replace(result, members=members, number=number, middle=tuple(middle))
    return result


def _result(run: Run, member: Member, cycles: int, stop: signals.StopRequest) -> Result:
    return Result(
        folder=member.folder,
        env_steps=member.env_steps(cycles),
        best_reward=best_or_none(member.best),
        last_evaluation=member.last_evaluation,
        stopped_by=stop.signal,
        stopped_because=run.hooks.stopped,
    )


def _describe(run: Run, member: Member) -> None:
    """Write what a person looks at when all is done; all that a resume needs is saved by now."""
    if member.config.log.tensorboard and member.last_evaluation:
        settings = serialization.flatten(asdict(member.config))
        sinks.hyperparameters(member.folder / "tensorboard", settings, member.last_evaluation)
    with _optional(run, f"plots of {member.folder}"):
        plots.learning_curve(member.folder, _title(member.config))
        plots.learning_phases(member.folder, member.config)


@contextlib.contextmanager
def _optional(run: Run, what: str) -> Iterator[None]:
    """Let an error of the disk be a warning."""
    try:
        yield
    except OSError as error:
        run.console.say(f"warning: {what} were not written: {first_line(error)}")


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
            run.console.say(f"warning: {folder / pages.NAME} was not written: {error}")
