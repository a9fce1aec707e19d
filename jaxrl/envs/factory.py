"""From a configuration to vectorised environments."""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import TrainConfig, env_names
from jaxrl.envs import registry
from jaxrl.envs.env_state import LazyEnv, Template
from jaxrl.envs.gymnasium import env as host
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.types import Array


def build(config: TrainConfig, known: Template | None = None) -> Any:
    """Build the training environments; what is known of them need not be found out again."""
    if env_names.is_hosted(config.env):
        task = config.task
        return host.build(config.env, config.num_envs, task.async_factor, task.episode_length)
    env = LazyEnv(lambda: _make(config))
    template = known or VectorEnv(env, num_envs=1, episode_length=1).template
    length = config.task.episode_length or template.episode_length
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
        pool_size=config.task.reset_pool or config.num_envs,
        fresh_resets=config.task.fresh_resets,
        random_first_age=config.task.random_first_age,
        episodic_reward=config.task.episodic_reward,
        keep_broken=config.task.on_nan == "stop",
        known=template,
    )


def _make(config: TrainConfig) -> Any:
    """Build one environment."""
    with _on_host():
        if config.env in env_names.MOTION:
            with_amp = config.amp.weight > 0
            env = registry.make_motion(config.env, config.motion, with_amp=with_amp)
        elif config.env in env_names.ARM:
            env = registry.make_arm(config.pick)
        else:
            env = registry.make(config.env, config.backend)
    if config.task.randomize:
        from jaxrl.envs.randomize import Randomized

        env = Randomized(env, _function(config.task.randomize))
    return env


def for_evaluation(env: VectorEnv, num_envs: int, *, trials: bool = True) -> VectorEnv:
    """Return the same world with another number of copies, all starting at age zero.

    Where an environment has fixed starts to be judged by, there is one copy for each of them, and
    a shorter time limit of training does not cut them. Without `trials` starts are drawn instead,
    for as many copies as were asked for.
    """
    plain = {"random_first_age": False, "fresh_resets": True, "keep_broken": False}
    env = replace(env, num_envs=num_envs, **plain)
    if not trials or not env.template.trials:
        return env
    length = env.template.episode_length
    return replace(env, num_envs=env.template.trials, episode_length=length, trials=True)


def for_drawing(env: VectorEnv, num_envs: int, trials: tuple[int, ...] | None = None) -> VectorEnv:
    """Return copies for evaluation that carry all of Brax's state, also what only a picture shows.

    Of an environment's fixed starts only some may be played, by their numbers.
    """
    env = replace(env, keep_broken=False)
    env = for_evaluation(replace(env, known=env.whole_template), num_envs)
    if not env.trials or trials is None:
        return env
    return replace(env, env=_SomeTrials(env.env, trials), num_envs=len(trials))


class _SomeTrials:
    """An environment with some of its fixed starts."""

    def __init__(self, env: Any, numbers: tuple[int, ...]):
        self._env, self._numbers = env, jnp.asarray(numbers)

    def trial(self, number: Array) -> Any:
        """Start in one of them."""
        return self._env.trial(self._numbers[number])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


@contextlib.contextmanager
def _on_host() -> Iterator[None]:
    """Compute on the processor: a model is dozens of small arrays, each a kernel to compile."""
    try:
        processor = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # the user allows no other platform
        yield
        return
    with jax.default_device(processor):
        yield


def _function(path: str):
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--task.randomize: cannot load '{path}' ({error}).") from error
    if not callable(found):
        raise UserError(f"--task.randomize: '{path}' is no function.")
    return found
