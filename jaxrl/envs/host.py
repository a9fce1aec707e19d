"""Gymnasium environments on the processor, as an algorithm sees them.

They are Python objects with a state of their own: a run that resumes begins new episodes, and
its numbers are not repeated bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.host_group import PREFIX, Group, Remote
from jaxrl.errors import UserError
from jaxrl.types import ActionSpec, EnvSpec


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError("Environments by gym: need Gymnasium: pip install 'jaxrl[gym]'.") from error
    return gymnasium


@dataclass(frozen=True)
class HostEnv:
    """What an algorithm asks of its environments, answered for environments on the host."""

    name: str  # gym:<id>
    num_envs: int
    groups: int
    observation: Any  # Gymnasium's space of one environment
    action: Any

    @property
    def rows(self) -> int:
        """Environments in all groups."""
        return self.num_envs

    @property
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        size = int(self.observation.n if hasattr(self.observation, "n") else 0)
        width = size or int(np.prod(self.observation.shape))
        discrete = hasattr(self.action, "n")
        number = int(self.action.n if discrete else np.prod(self.action.shape))
        return EnvSpec(jax.ShapeDtypeStruct((width,), jnp.float32), ActionSpec(number, discrete))

    def abstract_pool(self) -> tuple:
        """Nothing of such an environment is on the device."""
        return ()

    def reset(self, key: jax.Array, pool: Any = None) -> tuple:
        """Nothing of such an environment is on the device."""
        return ()

    def group(self, number: int, seed: int) -> Group:
        """Start `number` environments in this process."""
        return Group(self.name, self.observation, self.action, number, seed)

    def remote(self, number: int, seed: int) -> Remote:
        """Start `number` environments in a process of their own."""
        return Remote(self.name, self.observation, self.action, number, seed)


def build(name: str, num_envs: int, groups: int) -> HostEnv:
    """Look up a Gymnasium environment by gym:<id>."""
    gymnasium = _gymnasium()
    try:
        one = gymnasium.make(name.removeprefix(PREFIX))
    except ImportError as error:
        hint = "pip install 'jaxrl[gym]' brings what its MuJoCo tasks need"
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error} ({hint}).") from error
    except gymnasium.error.Error as error:
        raise UserError(f"--env: Gymnasium cannot make '{name}': {error}") from error
    observation, action = one.observation_space, one.action_space
    one.close()
    spaces = gymnasium.spaces
    if not isinstance(observation, spaces.Box | spaces.Discrete):
        raise UserError(f"--env: '{name}' observes {observation}, not a Box or Discrete.")
    bounded = isinstance(action, spaces.Box) and action.is_bounded()
    if not (bounded or isinstance(action, spaces.Discrete)):
        raise UserError(
            f"--env: '{name}' acts by {action}; bounded Box and Discrete are supported."
        )
    return HostEnv(name, num_envs, groups, observation, action)
