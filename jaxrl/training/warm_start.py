"""A new run that starts from another one: from its full state, or from what it has learnt.

from_full_state   everything but the counters: what SB3 calls reset_num_timesteps=True
load, apply       networks and normaliser alone (--init-from), in a run of other settings
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.off_policy import replay
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import (
    TrainConfig,
    env_names,
    serialization,
    settings,
    validate,
    zoo,
)
from jaxrl.errors import UserError
from jaxrl.policies import files as network_files
from jaxrl.policies import load as policies
from jaxrl.programs import Program
from jaxrl.training import resume
from jaxrl.training.resume import InitialState
from jaxrl.types import PyTree, TrainState
from jaxrl.utils import atomic_io, sharding, trees

# What a learner has learnt, as opposed to how far it has come: not the optimiser, no counters.
_TRANSFERRED = frozenset(
    {"params", "target_params", "obs_stats", "value_stats", "return_stats", "return_scale"}
)


class WarmStart(NamedTuple):
    """Arrays by their place in the learner, and what to tell the user."""

    arrays: dict[str, np.ndarray]
    remark: str
    warnings: Sequence[str] = ()


def from_full_state(program: Program, source: Path, step: int | None = None) -> InitialState:
    """Start from another run's last state, or that of `step`, with all counters at 0.

    Schedules begin again, and so do the random numbers: repeating those of the first run would
    repeat its choices. Episodes in progress, replay and curriculum stay.
    """
    config = program.config
    with CheckpointManager(source / "checkpoints", read_only=True) as checkpoints:
        state, restored, warnings = resume.restore_state(program, checkpoints, step)
    saved = dict(restored.metadata.get("settings", {}))
    saved.pop("seed", None)
    resume.refuse_other_settings(config, saved)
    learner = state.learner
    zeros = {
        name: sharding.put_like(getattr(learner, name), 0)
        for name in ("skipped_updates", "nonfinite_streak")
    }
    total = sharding.put_like(learner.total_iterations, config.total_iterations)
    key = jax.random.fold_in(state.key, 2**32 - 1)  # no iteration has come that far
    key = jax.random.fold_in(key, int(state.iteration))
    key = jax.random.fold_in(key, config.seed)  # each continuation makes choices of its own
    state = state.replace(
        key=jax.device_put(key, state.key.sharding, may_alias=False),
        iteration=sharding.put_like(state.iteration, 0),
        learner=learner.replace(total_iterations=total, **zeros),
    )
    if env_names.is_gymnasium(config.env):  # its episodes cannot be taken along
        restarted = replay.restart_episodes(state.collector.replay, config.learning.rollout_length)
        state = state.replace(collector=state.collector.replace(replay=restarted))
    remark = f"starting from the state of {source} at step {restored.step:,}, counted from 0"
    return InitialState(state, {}, warnings, [remark])


def load(program: Program) -> WarmStart | None:
    """Read what --init-from names, and check that it fits; None where it names nothing."""
    path, config = program.config.init_from, program.config
    if path is None:
        return None
    if config.rrd.reward_only:
        raise UserError("--init-from: --rrd.reward-only learns no policy.")
    path, step = policies.split_checkpoint(zoo.resolve(path))
    if any(path.glob("*/policies/*.npz")):
        policies.find(path)  # says that there are several to choose from
    theirs = _settings_of(path) if (path / "checkpoints").is_dir() else None
    if theirs is not None and theirs.algo == config.algo:
        return _from_checkpoint(program, path, theirs, step)
    return _from_policy(program, path, step)


def _settings_of(path: Path) -> TrainConfig:
    """Read a run's settings; none of its code is imported, so none need be allowed."""
    file = path / "config.json"
    if not file.is_file():
        raise UserError(f"--init-from: '{path}' is not a run folder: it has no config.json.")
    atomic_io.check_folder(path)
    config = serialization.from_json(atomic_io.read_text(file), str(file))
    validate.check_ranges(config, str(file))
    return config


def _from_checkpoint(
    program: Program, path: Path, theirs: TrainConfig, step: int | None
) -> WarmStart:
    """Take over actor, critic and statistics; of the newest checkpoint if `step` is None."""
    networks = _with_networks(theirs), _with_networks(program.config)
    alone = f", or take its policy alone: --init-from {path / 'policies' / 'final.npz'}"
    _refuse_other_networks(path, *networks, "actor")
    _refuse_other_networks(path, *networks, "critic", alone)
    with CheckpointManager(path / "checkpoints", read_only=True) as checkpoints:
        found = checkpoints.read(step)
    have = {
        leaf.path.removeprefix("learner/"): data
        for leaf, data in zip(found.leaves, found.arrays, strict=True)
    }
    wanted = {
        name: leaf
        for name, leaf in _named(program.alone.abstract_state().learner).items()
        if name.split("/")[0] in _TRANSFERRED
    }
    _refuse_other_shapes(path, have, wanted)
    taken = {name: have[name] for name in wanted}
    network_files.refuse_nonfinite(taken, f"--init-from: the checkpoint of '{path}'")
    remark = f"initialised all networks from {path}, step {found.step:,}"
    return WarmStart(taken, remark, found.warnings)


def _from_policy(program: Program, path: Path, step: int | None) -> WarmStart:
    """Take over the policy with its normaliser; everything else is initialised."""
    last = "final" if (path / "policies" / "final.npz").exists() else "best"
    file = policies.find(path, last if step is None else str(step))
    stored, ours = network_files.read(file), _with_networks(program.config)
    _refuse_other_networks(file, replace(ours, network=stored.config), ours, "actor")
    # The same tree with names for leaves tells where in the learner the policy's arrays belong.
    learner = program.alone.abstract_state().learner
    places = jax.tree.unflatten(jax.tree.structure(learner), list(_named(learner)))
    place_of = _named(program.policy_params(places))
    have = {place_of[name]: what for name, what in stored.arrays.items() if name in place_of}
    wanted = {place: _named(learner)[place] for place in place_of.values()}
    _refuse_other_shapes(file, have, wanted)
    data = network_files.read_arrays(file, list(place_of))
    have = {place_of[name]: values for name, values in data.items()}
    return WarmStart(have, f"starting from the policy {file}; any critic is initialised")


def _named(tree: PyTree) -> dict[str, Any]:
    return trees.named_leaves(tree)


def _with_networks(config: TrainConfig) -> TrainConfig:
    """Return a configuration with the settings of the networks that its algorithm builds."""
    return replace(config, network=algorithms.network_config(config))


def _refuse_other_networks(
    path: Path, theirs: TrainConfig, ours: TrainConfig, network: str, other: str = ""
) -> None:
    for setting in settings.weights_of(network):
        have, need = (settings.get(config, setting) for config in (theirs, ours))
        if have != need:
            flag = settings.flag(setting)
            shown = " ".join(map(str, have)) if isinstance(have, tuple) else have
            raise UserError(
                f"--init-from: '{path}' has {flag} {have}, this run {need}: "
                f"give {flag} {shown}{other}."
            )


def _refuse_other_shapes(path: Path, have: Mapping[str, Any], wanted: dict[str, Any]) -> None:
    for name, leaf in wanted.items():
        shape = list(have[name].shape) if name in have else "missing"
        if shape != list(leaf.shape):
            raise UserError(
                f"--init-from: '{path}' does not fit this run: {name} is {shape} there, here "
                f"{list(leaf.shape)}. Its environment must observe and act alike, and its networks "
                "be of the same size."
            )


def apply(state: TrainState, taken: WarmStart) -> InitialState:
    """Return a first state with what another run has learnt in its place."""
    learner = state.learner
    leaves = [
        sharding.put_like(leaf, taken.arrays[name]) if name in taken.arrays else leaf
        for name, leaf in _named(learner).items()
    ]
    learner = jax.tree.unflatten(jax.tree.structure(learner), leaves)
    if jax.tree.leaves(getattr(learner, "initial_params", ())):
        # A copy: the two are donated separately.
        learner = learner.replace(initial_params=jax.tree.map(lambda x: x.copy(), learner.params))
    target_params = getattr(learner, "target_params", {})
    if target_params and not any(name.startswith("target_params/") for name in taken.arrays):
        followed = {name: learner.params[name] for name in target_params}
        learner = learner.replace(target_params=jax.tree.map(lambda x: x.copy(), followed))
    return InitialState(state.replace(learner=learner), {}, taken.warnings, [taken.remark])
