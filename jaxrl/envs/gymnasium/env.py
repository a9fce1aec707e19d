"""Gymnasium environments on the processor, as an algorithm sees them.

They are Python objects with a state of their own: a run that resumes begins new episodes, and
its numbers are not repeated bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.gymnasium.workers import EnvWorker, Group, GymSpec
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
    """What an algorithm asks of its environments, answered for environments on the host."""

    recipe: GymSpec
    num_envs: int
    groups: int
    longest_episode: int  # in actions
    first_curriculum: tuple = ()  # start states are the environments' own business

    @property
    def rows(self) -> int:
        """Environments in all groups."""
        return self.num_envs

    @property
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        seen, done = self.recipe.observation, self.recipe.action
        width = int(seen.n if hasattr(seen, "n") else np.prod(seen.shape))
        discrete = hasattr(done, "n")
        number = int(done.n if discrete else np.prod(done.shape))
        return EnvSpec(jax.ShapeDtypeStruct((width,), jnp.float32), ActionSpec(number, discrete))

    def abstract_pool(self) -> tuple:
        """Nothing of such an environment is on the device."""
        return ()

    def reset(self, key: jax.Array, pool: Any = None) -> tuple:
        """Nothing of such an environment is on the device."""
        return ()

    def group(self, number: int, *seed: int) -> Group:
        """Start `number` environments in this process."""
        return Group(self.recipe, number, _seed(*seed))

    def remote(self, number: int, *seed: int) -> EnvWorker:
        """Start `number` environments in a process of their own."""
        return EnvWorker(self.recipe, number, _seed(*seed))


def _seed(*numbers: int) -> int:
    """Mix numbers into a seed: neighbours must not share environments.

    To NumPy zeros at the end are nothing: without their count, evaluations would be what was
    trained on.
    """
    mixed = np.random.SeedSequence((len(numbers), *numbers))
    return int(mixed.generate_state(1)[0] // 2)


def build(name: str, num_envs: int, groups: int, limit: int | None = None) -> GymnasiumEnv:
    """Look up a Gymnasium environment by gym:<id>."""
    gymnasium = _gymnasium()
    try:
        one = GymSpec(name, limit).make()
    except ImportError as error:
        hint = "pip install 'jaxrl[gym]' brings what its MuJoCo tasks need"
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error} ({hint}).") from error
    except (gymnasium.error.Error, ValueError) as error:  # ValueError: gym:: names no module
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error}") from error
    observation, action, known = one.observation_space, one.action_space, one.spec
    one.close()
    spaces = gymnasium.spaces
    if not isinstance(observation, spaces.Box | spaces.Discrete):
        raise UserError(f"--env: '{name}' observes {observation}, not a Box or Discrete.")
    bounded = isinstance(action, spaces.Box) and action.is_bounded()
    if not (bounded or isinstance(action, spaces.Discrete)):
        raise UserError(f"--env: '{name}' acts by {action}, not by a bounded Box or Discrete.")
    if limit is None and (known is None or known.max_episode_steps is None):
        raise UserError(
            f"--env: '{name}' has no time limit of its own: give --task.episode-length."
        )
    longest = limit or int(known.max_episode_steps)
    return GymnasiumEnv(GymSpec(name, limit, observation, action), num_envs, groups, longest)
