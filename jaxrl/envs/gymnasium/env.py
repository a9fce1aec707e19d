"""Gymnasium environments on the CPU, as an algorithm sees them.

Their state lives in Python objects: a resumed run begins new episodes, so its results are not
repeated bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrl.envs.gymnasium import observations, workers
from jaxrl.envs.gymnasium.workers import EnvGroup, EnvWorker, GymSpec, WorkerGroup
from jaxrl.envs.hooks import Hooks
from jaxrl.errors import UserError, install
from jaxrl.types import ActionSpec, EnvSpec

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Discrete


def _gymnasium() -> ModuleType:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError(f"Environments by gym: need Gymnasium: {install('gym')}.") from error
    return gymnasium


@dataclass(frozen=True)
class GymnasiumEnv:
    """The interface of `VectorEnv` that algorithms use, for environments on the CPU."""

    gym_spec: GymSpec
    num_envs: int
    groups: int
    longest_episode: int  # in actions
    first_curriculum: tuple = ()  # Gymnasium environments choose their own start states
    hooks: Hooks = Hooks()  # they have none

    @property
    def rows(self) -> int:
        """Environments in all groups."""
        return self.num_envs

    @property
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        action = self.gym_spec.action
        discrete = isinstance(action, _gymnasium().spaces.Discrete)
        found = observations.shapes(self.gym_spec.observation)
        obs = observations.map_parts(lambda part: jax.ShapeDtypeStruct(*part), found)
        return EnvSpec(obs, ActionSpec(_size(action), discrete))

    def abstract_pool(self) -> tuple:
        """Return (): no part of the environments is on the device."""
        return ()

    def reset(self, key: jax.Array, pool: Any = None) -> tuple:
        """Return (): no part of the environments is on the device."""
        return ()

    def group(self, number: int, *seed: int) -> EnvGroup:
        """Start `number` environments in this process."""
        return EnvGroup(self.gym_spec, number, _seed(*seed))

    def workers(self, rows: Sequence[range], *seed: int) -> WorkerGroup:
        """Start a group, or some rows of it: those of each range in a process of their own.

        Seeds follow from the rows, whichever process steps them.
        """
        first = _seed(*seed)
        return WorkerGroup(
            [EnvWorker(self.gym_spec, len(each), first + each.start) for each in rows]
        )


def _size(space: "Box | Discrete") -> int:
    """Return the length of an action, or how many there are to choose from."""
    from gymnasium.spaces import Discrete

    return int(space.n) if isinstance(space, Discrete) else int(np.prod(space.shape))


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
    from gymnasium.spaces import Box, Discrete

    try:
        env = workers.make(name, limit)
    except ImportError as error:
        hint = f"{install('gym')} brings what its MuJoCo tasks need"
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error} ({hint}).") from error
    except (gymnasium.error.Error, ValueError) as error:  # ValueError: gym:: names no module
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error}") from error
    observation, action, registered = env.observation_space, env.action_space, env.spec
    env.close()
    if part := observations.unsupported(observation):
        raise UserError(
            f"--env: '{name}' observes {part}: only Box, Discrete and a Dict of these are "
            "supported."
        )
    if not isinstance(action, Box | Discrete) or (
        isinstance(action, Box) and not action.is_bounded()
    ):
        raise UserError(f"--env: '{name}' acts by {action}, not by a bounded Box or Discrete.")
    longest = limit or (registered and registered.max_episode_steps)
    if longest is None:
        raise UserError(f"--env: '{name}' has no time limit: set --task.episode-length.")
    spec = GymSpec(name, limit, observation, action)  # type: ignore[arg-type]
    return GymnasiumEnv(spec, num_envs, groups, longest)
