"""Where a run starts: at the beginning, or exactly where its last checkpoint left it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.algorithms.off_policy import replay
from jaxrl.checkpoint.manager import CheckpointManager, Restored
from jaxrl.checkpoint.snapshot import CorruptCheckpointError, is_number
from jaxrl.config import TrainConfig, settings
from jaxrl.errors import UserError
from jaxrl.loggers import metrics_log
from jaxrl.programs import Program
from jaxrl.types import TrainState
from jaxrl.utils import processes, sharding


class InitialState(NamedTuple):
    """The state to start from, what was saved beside it, and what to tell the user."""

    state: TrainState
    metadata: dict[str, Any]
    warnings: Sequence[str] = ()
    remarks: Sequence[str] = ()


def all_settings(program: Program) -> dict[str, Any]:
    """Return the settings that a run, and each member of a population, must keep on resume."""
    each = [settings.fixed_on_resume(config) for config in program.members]
    alone = {"settings": settings.fixed_on_resume(program.config)}
    return alone | ({"settings_of_members": each} if each else {})


def layout(program: Program) -> dict[str, int]:
    """Return the devices and processes on which a state was computed."""
    return {"devices": program.mesh.size, "processes": processes.count()}


def iterations_of(state: TrainState) -> int:
    """Return how many iterations a state has behind it, all members alike."""
    return int(np.ravel(processes.fetch(state.iteration))[0])


def cycles_of(program: Program, start: object) -> int:
    """Return how many cycles a start has behind it: none, unless it is a full state."""
    if not isinstance(start, InitialState):
        return 0
    return iterations_of(start.state) // program.config.iterations


def checkpointed_part(config: TrainConfig, state: TrainState) -> TrainState:
    """Return the part of a state that checkpoints hold: all of it, unless replay is left out."""
    if config.checkpoint.replay or not jax.tree.leaves(state.collector.replay):
        return state
    return state.replace(collector=state.collector.replace(replay=()))


def save_first(program: Program, checkpoints: CheckpointManager, state: TrainState) -> None:
    """Save a first state that came from another run, which may be gone when this one resumes."""
    metadata = {**all_settings(program), **layout(program)}
    checkpoints.save(0, checkpointed_part(program.config, state), metadata, block=True)


def never_saved(config: TrainConfig, checkpoints: CheckpointManager, folder: Path) -> bool:
    """Tell whether a run ended before it was to save, so that starting over loses nothing."""
    places = ("policies", "rewards", "*/policies")  # the last, of a population's members
    if checkpoints.steps() or any(any(folder.glob(f"{place}/final.npz")) for place in places):
        return False
    file = folder / "metrics.jsonl"
    log = metrics_log.read(file) if file.exists() else metrics_log.Log([], 0)
    reached = max((int(row["step"]) for row in log.rows), default=0)
    cycles = max(reached // (config.iterations * config.steps_per_iteration), log.damaged)
    # The first save is written in the background while cycles go on; the second one waits for it.
    return cycles <= 2 * config.cycles * config.checkpoint.save_freq


def restore_state(
    program: Program, checkpoints: CheckpointManager, step: int | None = None
) -> tuple[TrainState, Restored, list[str]]:
    """Return the newest state that is whole, with its checkpoint, and warnings for the user.

    With `step`, the state of that step.
    """
    config, whole = program.config, program.abstract_state()
    restored = checkpoints.restore(
        checkpointed_part(config, whole),
        step,
        check_metadata=partial(check_metadata, len(program.members)),
    )
    state, warnings = restored.state, list(restored.warnings)
    if checkpointed_part(config, whole) is not whole:
        # Zeros are an empty store; what the episodes in progress did before is lost.
        blank = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), whole.collector.replay)
        places = jax.tree.map(lambda s: s.sharding, whole.collector.replay)
        blank = jax.tree.map(sharding.put, replay.exclude_current(blank), places)
        state = state.replace(collector=state.collector.replace(replay=blank))
    devices, before = program.mesh.size, restored.metadata
    if before.get("devices") != devices:
        # Members of a population stay as they are; rows are shuffled on the device they lie on.
        how = (
            "results differ in the last bits"
            if program.members
            else "minibatches are shuffled differently, so results differ from here on"
        )
        warnings.append(f"The number of devices changed: {how}.")
    elif before.get("processes") != processes.count() and devices > 2 and not program.members:
        # A sum of more than two numbers depends on their order.
        warnings.append("The number of processes changed: results may differ in the last bits.")
    return state, restored, warnings


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(is_number, values))


# What a run writes beside its state (`Run.save`, `Member.state_dict`), and what each may be.
_METADATA: dict[str, Callable[[Any], bool]] = {
    "elapsed": is_number,
    "devices": _is_count,
    "processes": _is_count,
    "settings": lambda value: isinstance(value, dict),
    "best": lambda value: value is None or is_number(value),
    "episodes": _is_count,
    "nonfinite_steps": _is_count,
    "losses": lambda value: (
        isinstance(value, list) and all(_are_numbers(each) and len(each) == 2 for each in value)
    ),
    "recent": _are_numbers,
    "last_evaluation": lambda value: isinstance(value, dict) and _are_numbers([*value.values()]),
}


def check_metadata(members: int, metadata: Any) -> None:
    """Raise CorruptCheckpointError unless metadata is what a run of this many members writes."""
    if not isinstance(metadata, dict):
        raise CorruptCheckpointError(f"its metadata is {metadata!r:.40}, not an object")
    for name, holds in _METADATA.items():
        if name in metadata and not holds(metadata[name]):
            raise CorruptCheckpointError(f"its metadata has '{name}' {metadata[name]!r:.40}")
    for name in ("members", "settings_of_members"):
        each = metadata.get(name, [{}] * members)
        if not isinstance(each, list) or len(each) != members:
            raise CorruptCheckpointError(f"its metadata has '{name}' that are not {members}")
        for one in each:
            check_metadata(0, one if name == "members" else {"settings": one})


def restore(program: Program, checkpoints: CheckpointManager) -> InitialState:
    """Start from the newest checkpoint that is whole."""
    config = program.config
    state, restored, warnings = restore_state(program, checkpoints)
    refuse_other_settings(config, restored.metadata.get("settings", {}))
    saved = restored.metadata.get("settings_of_members", [{}] * len(program.members))
    for member, known in zip(program.members, saved, strict=True):
        refuse_other_settings(member, known)
    if config.total_iterations < iterations_of(state):
        raise UserError(
            f"This run has done {restored.step:,} environment steps already: give a larger "
            "--epochs or --total-steps."
        )
    # A longer run moves the end of the schedules, nothing else.
    old = state.learner.total_iterations
    total = sharding.put_like(old, config.total_iterations)
    learner = state.learner.replace(total_iterations=total)
    return InitialState(state.replace(learner=learner), restored.metadata, warnings)


def refuse_other_settings(config: TrainConfig, saved: dict[str, Any]) -> None:
    """Changing a setting in the middle of a run would be half applied: refuse, naming it."""
    if text := changed_settings(config, saved):
        raise UserError(
            f"config.json differs from what this run was trained with: {text}. Put it back, or "
            "start a new run with the new settings."
        )


def changed_settings(config: TrainConfig, saved: dict[str, Any]) -> str:
    """Return the settings that differ from saved ones, with both values; "" if none does."""
    now = settings.fixed_on_resume(config)
    changed = [name for name in now if name in saved and saved[name] != now[name]]
    return ", ".join(f"{name} is {now[name]} (was {saved[name]})" for name in changed)
