"""From a configuration to vectorised environments."""

import importlib
from dataclasses import replace

from jaxrl.config import TrainConfig
from jaxrl.envs import registry
from jaxrl.envs.vector import VectorEnv
from jaxrl.errors import UserError


def default_pool_size(num_envs: int) -> int:
    """Return an eighth of the environments, 16 at least: resets then cost next to nothing."""
    return min(num_envs, max(16, num_envs // 8))


def build(config: TrainConfig) -> VectorEnv:
    """Build the training environments."""
    env = registry.make(config.env, config.backend)
    if config.task.randomize:
        from jaxrl.envs.randomize import Randomized

        env = Randomized(env, _function(config.task.randomize))
    length = config.task.episode_length or getattr(env, "episode_length", 1000)
    if length % config.task.action_repeat:
        raise UserError(
            f"--task.action-repeat {config.task.action_repeat} must divide the episode length "
            f"{length}: give a --task.episode-length that it divides."
        )
    return VectorEnv(
        env=env,
        num_envs=config.num_envs,
        episode_length=length,
        action_repeat=config.task.action_repeat,
        pool_size=config.task.reset_pool or default_pool_size(config.num_envs),
        random_first_age=config.task.random_first_age,
    )


def for_evaluation(env: VectorEnv, num_envs: int) -> VectorEnv:
    """Return the same world with another number of copies, all starting at age zero."""
    return replace(env, num_envs=num_envs, random_first_age=False)


def _function(path: str):
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--task.randomize: cannot load '{path}' ({error}).") from error
