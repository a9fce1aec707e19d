"""A run folder that is deleted during its run: notice it, and save the run in a new one.

The run then stops. Everything that is in memory is saved: the full state, the policy, the
evaluations, and the log, which the open file still holds. The best policy and TensorBoard's events
are gone with the folder.
"""

import contextlib
import os
import tempfile
from pathlib import Path

import jax

from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.errors import TrainingStopped
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers import sinks
from jaxrl.training import overview
from jaxrl.training.run import Member, Run
from jaxrl.training.summary import resume_command
from jaxrl.types import TrainState
from jaxrl.utils import atomic_io, processes

# Written when a run begins, never removed by it: without one of them its folder is not what it was.
_ALWAYS_THERE = ("config.json", "metrics.jsonl")


class RunFolderLost(TrainingStopped):
    """The run folder, or a part without which it cannot be resumed, was deleted."""


def missing(run: Run) -> Path | None:
    """Return a file of the run that is gone; None where all are there."""
    for member in _members(run):
        for name in _ALWAYS_THERE:
            if not os.path.exists(member.folder / name):
                return member.folder / name
    return None


def check(
    run: Run, state: TrainState, cycles: int, unlogged: list[dict[str, float]] | None = None
) -> None:
    """Raise RunFolderLost where the folder is gone, after saving the run in a new one.

    `unlogged` are the rows of a cycle that is not logged yet.
    """
    gone = processes.of_main(str(missing(run) or "") if processes.is_main() else "")
    if not gone:
        return
    if unlogged:  # the deleted file still takes them
        together = [overview.joined(unlogged)] if run.overview else []
        for member, row in zip(_members(run), [*together, *unlogged], strict=True):
            member.log(cycles, row)
    raise RunFolderLost(f"{gone} was deleted during the run. {save_elsewhere(run, state, cycles)}")


def save_elsewhere(run: Run, state: TrainState, cycles: int) -> str:
    """Save all that is in memory in a new folder; say where, and how to go on."""
    old = run.folder
    new = Path(processes.of_main(str(_new_folder(old)) if processes.is_main() else ""))
    for member in _members(run):
        member.folder = new / member.folder.relative_to(old)
    if processes.is_main():
        folders.describe(new, run.config, run.program.members)
        for member in _members(run):
            _save_logs(member)
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
        return f"Its log was saved in {new}; its state was lost: the failed cycle had donated it."
    keep = run.config.checkpoint.keep
    with CheckpointManager(new / "checkpoints", keep=keep) as run.checkpoints:
        run.save(state, cycles, block=True)
    for member, networks in zip(run.members, run.networks(state), strict=True):
        member.save_networks(networks, cycles, "final")
    return (
        f"The run was saved in {new} at step {run.env_steps(cycles):,}, and stopped. "
        f"Continue with: {resume_command(new, run.config)}"
    )


def _members(run: Run) -> list[Member]:
    return [*([run.overview] if run.overview else []), *run.members]


def _save_logs(member: Member) -> None:
    for sink in (*member.sinks.cycle, *member.sinks.iteration):
        if isinstance(sink, sinks.JsonLines):
            # Some network file systems give nothing back: the state matters more than the log.
            with contextlib.suppress(OSError):
                if text := sink.contents():
                    atomic_io.write_text(member.folder / sink.path.name, text)
    if member.eval_log:
        member.eval_log.move_to(member.folder)


def _new_folder(path: Path) -> Path:
    """Make <run>-recovered, or a temporary folder where that cannot be made."""
    name = f"{path.name}-recovered"
    try:
        return folders.make_unique(path.with_name(name))
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"{name}-"))
