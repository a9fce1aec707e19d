"""From a name or a configuration to a (single, unvectorised) Brax environment."""

import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxrl.config import TaskConfig, TrainConfig, env_names
from jaxrl.envs.brax_patches import import_brax
from jaxrl.errors import UserError, nearest
from jaxrl.utils import assignments, user_code

if TYPE_CHECKING:
    from brax.envs.base import Env


def from_config(config: TrainConfig) -> "Env":
    """Build the environment of a run; some tasks have settings of their own."""
    if config.env in _TASKS:
        import_brax()
        return _TASKS[config.env](config)
    agents = {} if config.task.num_agents is None else {"num_agents": config.task.num_agents}
    arguments = assignments.parse("--env-args", config.env_args)
    return make(config.env, config.backend, config.task, **agents, **arguments)


def make(
    name: str, backend: str | None = None, task: TaskConfig | None = None, /, **kwargs: Any
) -> "Env":
    """Build the environment called `name`; `backend` None means the environment's own choice."""
    task = task or TaskConfig()
    if env_names.is_playground(name):
        import_brax()
        from jaxrl.envs import playground

        return playground.make(name, task)
    if backend is not None:
        if backend not in env_names.BACKENDS:
            hint = nearest(backend, env_names.BACKENDS)
            raise UserError(f"--backend: unknown backend '{backend}'.{hint} {env_names.BACKENDS}")
        kwargs["backend"] = backend
    if name in env_names.BRAX:
        return _make_brax(name, kwargs)
    if name in env_names.CLASSIC or name.startswith("probe/"):
        if backend is not None:
            raise UserError(f"--backend: '{name}' has no physics backend: use --backend None.")
        return _make_own(name, kwargs)
    if env_names.is_custom(name):
        return _make_custom(name, task, kwargs)
    names = (*env_names.BRAX, *env_names.CLASSIC, *env_names.MOTION, *env_names.ARM)
    raise UserError(
        f"--env: unknown environment '{name}'.{nearest(name, names)} Known: {', '.join(names)}, "
        "MuJoCo Playground's as playground:<name>, or your own as module:Class."
    )


def _make_brax(name: str, kwargs: dict[str, Any]) -> "Env":
    envs = import_brax()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return envs.get_environment(name, **kwargs)
        except Exception as error:  # brax raises many kinds for a backend it lacks
            if isinstance(error, TypeError):
                raise UserError(f"--env-args: brax's '{name}': {error}") from error
            raise UserError(
                f"--backend: brax cannot build '{name}' on '{kwargs.get('backend')}': {error}"
            ) from error


def _make_own(name: str, kwargs: dict[str, Any]) -> "Env":
    import_brax()
    from jaxrl.envs.tasks import arena, catch, classic, probes, recall

    classes: dict[str, type] = {
        "arena": arena.Arena,
        "cartpole": classic.CartPole,
        "catch": catch.Catch,
        "delayed_match": recall.DelayedMatch,
        "pendulum": classic.Pendulum,
        "recall": recall.Recall,
    }
    classes |= {f"probe/{probe}": cls for probe, cls in probes.PROBES.items()}
    if name not in classes:
        raise UserError(f"--env: unknown environment '{name}'.{nearest(name, classes)}")
    try:
        return classes[name](**kwargs)
    except TypeError as error:
        raise UserError(f"--env-args: '{name}': {error}") from error


def _make_imitation(config: TrainConfig) -> "Env":
    from jaxrl.envs.tasks import imitation, motion_env, streamed_imitation

    if config.motion.max_clips and (parts := motion_env.load_store(config.motion)):
        return streamed_imitation.StreamedImitation(*parts, seed=config.seed)
    use_amp = config.amp.weight > 0
    return imitation.Imitation(*motion_env.load_parts(config.motion), use_amp=use_amp)


def _make_heading(config: TrainConfig) -> "Env":
    from jaxrl.envs.tasks import heading, motion_env

    use_amp = config.amp.weight > 0
    return heading.Heading(*motion_env.load_parts(config.motion), use_amp=use_amp)


def _make_pick_place(config: TrainConfig) -> "Env":
    from jaxrl.envs.tasks.pick_place.env import PickPlace

    return PickPlace(config.pick)


_TASKS: dict[str, Callable[[TrainConfig], "Env"]] = {
    "imitation": _make_imitation,
    "heading": _make_heading,
    "pick_place": _make_pick_place,
}


def _make_custom(name: str, task: TaskConfig, kwargs: dict[str, Any]) -> "Env":
    import_brax()
    from jaxrl.envs import playground

    factory = user_code.load("--env", name)
    parameters = inspect.signature(factory).parameters
    is_task = "config_overrides" in parameters  # written for Playground's interface
    if is_task:
        kwargs = playground.arguments(factory, task) | kwargs
    given = {"config": task.config, "impl": task.impl != "jax", "assets": task.assets}
    for setting in (setting for setting, value in given.items() if value and not is_task):
        raise UserError(f"--task.{setting}: '{name}' takes no config_overrides; leave it out.")
    has_kwargs = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    flags = {"backend": "--backend", "num_agents": "--task.num-agents"}
    for argument in kwargs:
        if argument not in parameters and not has_kwargs:
            flag, hint = flags.get(argument, "--env-args"), nearest(argument, parameters)
            raise UserError(f"{flag}: '{name}' takes no {argument}; leave it out.{hint}")
    missing = [
        each.name
        for each in parameters.values()
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and each.name not in kwargs
    ]
    if missing:
        raise UserError(
            f"--env: '{name}' needs {', '.join(missing)}: --env-args {missing[0]}=VALUE."
        )
    env: Any = playground.make_own(factory, task, kwargs) if is_task else factory(**kwargs)
    if playground.is_task(env):
        env = playground.PlaygroundEnv(env)
    missing = [m for m in ("reset", "step", "action_size") if not hasattr(env, m)]
    if missing:
        raise UserError(f"--env: '{name}' is not a Brax environment, it lacks {missing}.")
    return env
