"""Tasks of MuJoCo Playground, its own and others written for it, as Brax environments.

A task keeps its physics, rewards and randomiser. Time limits, resets and episode statistics are
those of every other environment: the last observation of an episode is not lost, and each episode
has noise of its own.

Models of robots are read from mujoco_menagerie, which is searched for and never downloaded.
"""

# pyright: reportMissingImports=false
# Playground is an extra.

import contextlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs import Env, State

from jaxrl.config import TaskConfig
from jaxrl.envs import playground_patches
from jaxrl.errors import UserError, nearest
from jaxrl.types import Array, Key, PyTree
from jaxrl.utils import assignments

MENAGERIE_VARIABLE = "JAXRL_MENAGERIE"
_PREFIX = "playground:"
# Folders of mujoco_menagerie by the beginning of a task's name; the first match counts.
_ROBOTS = {
    "AeroCube": ("tetheria_aero_hand_open",),
    "Aloha": ("aloha",),
    "Apollo": ("apptronik_apollo",),
    "Barkour": ("google_barkour_vb",),
    "BerkeleyHumanoid": ("berkeley_humanoid",),
    "G1": ("unitree_g1",),
    "Go1": ("unitree_go1",),
    "H1": ("unitree_h1",),
    "LeapCube": ("leap_hand",),
    "Op3": ("robotis_op3",),
    "PandaRobotiq": ("franka_emika_panda", "robotiq_2f85_v4"),
    "Panda": ("franka_emika_panda",),
    "Spot": ("boston_dynamics_spot",),
    "T1": ("booster_t1",),
}
# Metrics by which a task reports that its goal is reached in a step.
_REACHED = ("reward/success", "success")


class PlaygroundEnv(Env):
    """A Playground task behind Brax's interface.

    `metrics["success"]` is 1 once a task has reported success in the episode.
    """

    def __init__(self, task: Any):
        self._task = task
        self.episode_length = int(task._config.get("episode_length", 1000))
        self.wanted_action_repeat = int(task._config.get("action_repeat", 1))

    def reset(self, rng: Array) -> State:
        """Start an episode."""
        return _to_brax(self._task.reset(rng), jnp.zeros((), jnp.float32))

    def step(self, state: State, action: Array) -> State:
        """Step the task, which may write into the dicts of the state that it gets."""
        from mujoco_playground import State as TaskState

        data: Any = state.pipeline_state
        before = TaskState(
            data=data,
            obs=state.obs,
            reward=state.reward,
            done=state.done,
            metrics=dict(state.metrics),
            info=dict(state.info),
        )
        reached = state.metrics.get("success", jnp.zeros((), jnp.float32))
        return _to_brax(self._task.step(before, action), reached)

    @property
    def observation_size(self) -> Any:
        """The task's."""
        return self._task.observation_size

    @property
    def action_size(self) -> int:
        """The task's."""
        return self._task.action_size

    @property
    def backend(self) -> str:
        """The name of the physics."""
        return "mjx"

    @property
    def dt(self) -> float:
        """Simulated seconds of a step."""
        return float(self._task.dt)

    @property
    def mj_model(self) -> Any:
        """MuJoCo's model, for rendering."""
        return self._task.mj_model

    @property
    def sys(self) -> Any:
        """MJX's model, as domain randomisation reads and replaces it."""
        return self._task.unwrapped._mjx_model

    @sys.setter
    def sys(self, model: Any) -> None:
        self._task.unwrapped._mjx_model = model


def _to_brax(state: Any, reached: Array) -> State:
    metrics = {name: jnp.asarray(x, jnp.float32) for name, x in state.metrics.items()}
    reported = [metrics[name] > 0 for name in _REACHED if name in metrics][:1]
    if reported:
        metrics["success"] = jnp.maximum(reached, reported[0].astype(jnp.float32))
    return State(state.data, state.obs, state.reward, state.done, metrics, dict(state.info))


def is_task(env: Any) -> bool:
    """Tell whether an object is written for Playground's interface, not for Brax's."""
    return hasattr(env, "mjx_model") and not isinstance(env, Env)


def make(name: str, task: TaskConfig) -> PlaygroundEnv:
    """Build playground:<name>."""
    registry = playground_patches.import_registry()
    wanted = name.removeprefix(_PREFIX)
    if wanted not in registry.ALL_ENVS:
        hint = nearest(wanted, registry.ALL_ENVS, _PREFIX)
        raise UserError(
            f"--env: MuJoCo Playground has no task '{wanted}'.{hint} "
            "python -m jaxrl.presets playground lists them."
        )
    changes = config_changes(registry.get_default_config(wanted), task)
    folder = _use_menagerie(wanted, task.assets)
    with playground_patches.quiet(), _naming_missing_files(folder, menagerie_folders(wanted)):
        return PlaygroundEnv(registry.load(wanted, config_overrides=changes))


def config_changes(defaults: Any, task: TaskConfig) -> dict[str, Any]:
    """Return the changes of a task's configuration that the settings ask for."""
    given = assignments.parse("--task.config", task.config, dotted=True)
    known = _paths(defaults)
    for path in given:
        if path not in known:
            raise UserError(f"--task.config: the task has no '{path}'.{nearest(path, known)}")
    if task.impl != "jax" and "impl" not in known:
        raise UserError(f"--task.impl {task.impl}: this task has no choice of implementation.")
    implementation = {"impl": task.impl} if "impl" in known and "impl" not in given else {}
    changes = implementation | given
    if changes.get("impl") == "warp" and importlib.util.find_spec("warp") is None:
        raise UserError("--task.impl warp needs the package warp-lang: pip install warp-lang.")
    try:
        defaults.copy_and_resolve_references().update_from_flattened_dict(changes)
    except (TypeError, ValueError) as error:
        raise UserError(f"--task.config: {error}") from error
    return changes


def arguments(factory: Callable[..., Any], task: TaskConfig) -> dict[str, Any]:
    """Return the arguments `config` and `config_overrides` of a task of the user's own.

    Its configuration is the default of its argument, or what `default_config` of its module
    returns.
    """
    config: Any = inspect.signature(factory).parameters.get("config")
    defaults = None if config is None or config.default is config.empty else config.default
    if defaults is None:
        module = sys.modules[factory.__module__]
        if not hasattr(module, "default_config"):
            raise UserError(
                f"--env: give the argument `config` of {factory.__name__} a default, or its module "
                "a function `default_config`."
            )
        defaults = module.default_config()
    changes = {"config_overrides": config_changes(defaults, task)}
    if config is None:
        return changes
    # A copy: a task writes its changes into the object that it gets, which may be a default.
    return changes | {"config": defaults.copy_and_resolve_references()}


def make_own(factory: Callable[..., Any], task: TaskConfig, kwargs: dict[str, Any]) -> Any:
    """Build a task of the user's own, which may read a robot of mujoco_menagerie."""
    playground_patches.import_registry()
    folder = find_menagerie(task.assets)
    playground_patches.read_robots_from(folder)
    with playground_patches.quiet(), _naming_missing_files(folder, ()):
        return factory(**kwargs)


def _paths(config: Any) -> list[str]:
    """Return the dotted paths of a ConfigDict's values, and of its inner dicts."""
    found = []
    for name, value in config.items():
        found.append(name)
        if hasattr(value, "items"):
            found += [f"{name}.{inner}" for inner in _paths(value)]
    return found


def randomizer(name: str) -> Callable[[PyTree, Key], PyTree]:
    """Return the domain randomisation of playground:<name>, as (model, key) -> model."""
    registry = playground_patches.import_registry()
    with contextlib.redirect_stdout(None):  # where it prints that there is none
        batched = registry.get_domain_randomizer(name.removeprefix(_PREFIX))
    if batched is None:
        with contextlib.redirect_stdout(None):
            having = [task for task in registry.ALL_ENVS if registry.get_domain_randomizer(task)]
        raise UserError(
            f"--task.randomize playground: '{name}' has no randomiser of its own; these have: "
            f"{', '.join(having)}."
        )
    return unbatched(batched)


def unbatched(batched: Callable[[PyTree, Array], tuple[PyTree, PyTree]]) -> Callable:
    """Return a randomiser of one model, from Playground's kind.

    Those take a batch of keys, and return a model with a first axis where `in_axes` is 0.
    """

    def randomize(model: PyTree, key: Key) -> PyTree:
        def is_none(leaf: Any) -> bool:
            return leaf is None

        models, in_axes = batched(model, key[None])
        leaves, structure = jax.tree.flatten(models, is_leaf=is_none)
        axes = jax.tree.leaves(in_axes, is_leaf=is_none)
        one = [leaf if axis is None else leaf[0] for leaf, axis in zip(leaves, axes, strict=True)]
        return jax.tree.unflatten(structure, one)

    return randomize


def menagerie_folders(name: str) -> tuple[str, ...]:
    """Return the folders of mujoco_menagerie that a task needs."""
    name = name.removeprefix(_PREFIX)
    return next((folders for start, folders in _ROBOTS.items() if name.startswith(start)), ())


def find_menagerie(assets: Path | None) -> Path:
    """Return where mujoco_menagerie is: at --task.assets, JAXRL_MENAGERIE, or in the package.

    The first of these folders that exists counts: --task.assets may be of a run that was trained
    on another machine. If none does, the first that was named.
    """
    package = importlib.util.find_spec("mujoco_playground")
    root = Path(package.origin).parent if package and package.origin else Path()
    variable = os.environ.get(MENAGERIE_VARIABLE)
    named = [assets, Path(variable).expanduser() if variable else None]
    places = [p for p in (*named, root / "external_deps" / "mujoco_menagerie") if p is not None]
    return next((place for place in places if place.is_dir()), places[0]).absolute()


def _use_menagerie(name: str, assets: Path | None) -> Path:
    """Let Playground read robots from the folder that is found; raise a UserError for its gaps."""
    folder = find_menagerie(assets)
    needed = menagerie_folders(name)
    if missing := [each for each in needed if not (folder / each).is_dir()]:
        where = "--task.assets" if assets is not None else f"--env {_PREFIX}{name}"
        raise UserError(
            f"{where}: {' and '.join(missing)} of mujoco_menagerie is not in '{folder}'. Get it by "
            "`git clone https://github.com/google-deepmind/mujoco_menagerie`, and name the folder "
            f"by {MENAGERIE_VARIABLE} or, in training, --task.assets."
        )
    playground_patches.read_robots_from(folder)
    return folder


@contextlib.contextmanager
def _naming_missing_files(folder: Path, needed: tuple[str, ...]) -> Iterator[None]:
    """Raise a UserError that names a file which an incomplete copy of mujoco_menagerie lacks.

    MuJoCo names a file as the model does: by a path to mujoco_menagerie, or within one of the
    `needed` folders.
    """
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        opened = re.search(r"[Ee]rror opening file '([^']+)'", str(error))
        file = opened[1] if opened else str(getattr(error, "filename", None) or "")
        inside = file.rpartition("mujoco_menagerie/")[2].removeprefix(f"{folder}/")
        if not file or (inside == file and not needed):
            raise
        where = "" if inside != file else f" of {' or '.join(needed)}"
        raise UserError(
            f"--task.assets: '{folder}' is incomplete: '{inside}'{where} is missing. Clone "
            "mujoco_menagerie again."
        ) from error
