"""From a configuration to vectorised environments."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import jax

from jaxrl.config import TrainConfig, env_names
from jaxrl.envs import registry
from jaxrl.envs.env_state import LazyEnv, Template
from jaxrl.envs.gymnasium import env as gymnasium_env
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.utils import user_code

if TYPE_CHECKING:
    from brax.envs.base import Env


def build(config: TrainConfig, cached_template: Template | None = None) -> VectorEnv | GymnasiumEnv:
    """Build the training environments; with a cached template, physics is not traced for it."""
    task = config.task
    if config.env == env_names.OFFLINE:
        raise UserError("This run learnt from recorded episodes: name an environment by --env.")
    if env_names.is_gymnasium(config.env):
        return gymnasium_env.build(
            config.env, config.num_envs, task.async_factor, task.episode_length
        )
    env = LazyEnv(lambda: _make(config))
    template = cached_template or VectorEnv(env, num_envs=1, episode_length=1).template
    length = task.episode_length or template.episode_length
    if length % task.action_repeat:
        raise UserError(
            f"--task.action-repeat {task.action_repeat} must divide the episode length "
            f"{length}: set a --task.episode-length that it divides."
        )
    return VectorEnv(
        env=env,
        num_envs=config.num_envs,
        episode_length=length,
        action_repeat=task.action_repeat,
        pool_size=task.reset_pool or config.num_envs,
        fresh_resets=task.fresh_resets,
        random_first_age=task.random_first_age,
        episodic_reward=task.episodic_reward,
        capture_nonfinite=task.on_nan == "stop",
        record_episodes=config.log.episodes,
        randomized=task.randomize is not None,
        cached_template=template,
    )


def _make(config: TrainConfig) -> "Env":
    """Build one environment."""
    with _on_cpu():
        env = registry.from_config(config)
    functions = _physics_functions(config)
    if functions != "kernels":
        from jaxrl.envs.physics_wrapper import WithPhysics

        env = WithPhysics(env, functions)
    _warn_of_action_repeat(env, config.task.action_repeat)
    if config.task.frame_stack > 1:
        from jaxrl.envs.frame_stack import FrameStack

        env = FrameStack(env, config.task.frame_stack)
    if config.task.randomize:
        from jaxrl.envs.randomize import Randomized

        env = Randomized(env, _randomizer(config))
    return env


def _physics_functions(config: TrainConfig) -> Literal["kernels", "plain", "stock"]:
    """Return what an environment on MuJoCo's physics is stepped with."""
    if config.physics == "stock":
        return "stock"
    # The compiler cannot split a kernel over devices: each would compute all environments.
    several = (config.devices or jax.device_count()) > 1
    on_mjx = env_names.solves_in_loops(config.env, config.backend)
    return "plain" if several and (on_mjx or env_names.is_custom(config.env)) else "kernels"


def _randomizer(config: TrainConfig) -> Callable:
    """Return what --task.randomize names."""
    if config.task.randomize != env_names.OWN_RANDOMIZER:
        return user_code.load("--task.randomize", config.task.randomize or "")
    if not env_names.is_playground(config.env):
        raise UserError(
            f"--task.randomize playground: '{config.env}' is not a MuJoCo Playground task: name a "
            "function of your own, as module:function."
        )
    from jaxrl.envs import playground

    return playground.randomizer(config.env)


def _warn_of_action_repeat(env: "Env", chosen: int) -> None:
    """Warn if a task names another action repeat than the settings have."""
    own = getattr(env, "wanted_action_repeat", chosen)
    if own != chosen:
        print(
            f"warning: this task is made for --task.action-repeat {own}, not {chosen}.",
            file=sys.stderr,
        )


def for_evaluation(
    env: VectorEnv, num_envs: int, *, trials: bool = True, randomize: bool = False
) -> VectorEnv:
    """Return the same environment with `num_envs` copies that start at age 0.

    An environment with fixed trials gets one copy for each of them, and its own time limit, even
    if training has a shorter one. `trials=False` samples start states instead. Physics is
    randomised, if it is in training, only where `randomize` is true.
    """
    env = replace(
        env,
        num_envs=num_envs,
        nominal=not randomize,
        random_first_age=False,
        fresh_resets=True,
        capture_nonfinite=False,
        reward_fn=None,
    )
    if not trials or not env.template.trials:
        return env
    length = env.template.episode_length
    return replace(env, num_envs=env.template.trials, episode_length=length, trials=True)


def for_rendering(
    env: VectorEnv, num_envs: int, trial_numbers: tuple[int, ...] | None = None
) -> VectorEnv:
    """Return copies for evaluation that carry the whole Brax state, as images need.

    `trial_numbers` selects some of the environment's fixed trials.
    """
    env = replace(env, capture_nonfinite=False)
    env = for_evaluation(replace(env, cached_template=env.full_template), num_envs)
    if not env.trials or trial_numbers is None:
        return env
    return replace(env, trial_numbers=trial_numbers, num_envs=len(trial_numbers))


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """Compute on the CPU: a model is dozens of small arrays, each a kernel to compile."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # the user allows no other platform
        yield
        return
    with jax.default_device(cpu):
        yield
