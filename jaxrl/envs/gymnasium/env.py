"""Gymnasium environments on the CPU, as an algorithm sees them.

Their state lives in Python objects: a resumed run begins new episodes, so its results are not
repeated bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.gymnasium.workers import EnvGroup, EnvWorker, GymSpec
from jaxrl.errors import UserError
from jaxrl.types import ActionSpec, EnvSpec


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError("Environments by gym: need Gymnasium: pip install 'jaxrl[gym]'.") from error
    return gymnasium


@dataclass(frozen=True)
class GymnasiumEnv:
    """The interface of `VectorEnv` that algorithms use, for environments on the CPU."""

    gym_spec: GymSpec
    num_envs: int
    groups: int
    longest_episode: int  # in actions
    first_curriculum: tuple = ()  # Gymnasium environments choose their own start states

    @property
    def rows(self) -> int:
        """Environments in all groups."""
        return self.num_envs

    @property
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        obs, action = self.gym_spec.observation, self.gym_spec.action
        width = int(obs.n if hasattr(obs, "n") else np.prod(obs.shape))
        discrete = hasattr(action, "n")
        size = int(action.n if discrete else np.prod(action.shape))
        return EnvSpec(jax.ShapeDtypeStruct((width,), jnp.float32), ActionSpec(size, discrete))

    def abstract_pool(self) -> tuple:
        """Return (): no part of the environments is on the device."""
        return ()

    def reset(self, key: jax.Array, pool: Any = None) -> tuple:
        """Return (): no part of the environments is on the device."""
        return ()

    def group(self, number: int, *seed: int) -> EnvGroup:
        """Start `number` environments in this process."""
        return EnvGroup(self.gym_spec, number, _seed(*seed))

    def worker(self, number: int, *seed: int) -> EnvWorker:
        """Start `number` environments in a process of their own."""
        return EnvWorker(self.gym_spec, number, _seed(*seed))


def _seed(*numbers: int) -> int:
    """Mix numbers into a seed, so that neighbouring numbers give unrelated environments.

    NumPy ignores zeros at the end: without the count of numbers, evaluations would repeat the
    seeds of training.
    """
    mixed = np.random.SeedSequence((len(numbers), *numbers))
    return int(mixed.generate_state(1)[0] // 2)


def build(name: str, num_envs: int, groups: int, limit: int | None = None) -> GymnasiumEnv:
    """Look up a Gymnasium environment by gym:<id>."""
    gymnasium = _gymnasium()
    try:
        env = GymSpec(name, limit).make()
    except ImportError as error:
        hint = "pip install 'jaxrl[gym]' brings what its MuJoCo tasks need"
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error} ({hint}).") from error
    except (gymnasium.error.Error, ValueError) as error:  # ValueError: gym:: names no module
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error}") from error
    observation, action, registered = env.observation_space, env.action_space, env.spec
    env.close()
    spaces = gymnasium.spaces
    if not isinstance(observation, spaces.Box | spaces.Discrete):
        raise UserError(f"--env: '{name}' observes {observation}, not a Box or Discrete.")
    bounded = isinstance(action, spaces.Box) and action.is_bounded()
    if not (bounded or isinstance(action, spaces.Discrete)):
        raise UserError(f"--env: '{name}' acts by {action}, not by a bounded Box or Discrete.")
    if limit is None and (registered is None or registered.max_episode_steps is None):
        raise UserError(f"--env: '{name}' has no time limit: set --task.episode-length.")
    longest = limit or int(registered.max_episode_steps)
    return GymnasiumEnv(GymSpec(name, limit, observation, action), num_envs, groups, longest)
