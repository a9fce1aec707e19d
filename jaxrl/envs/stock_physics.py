"""A wrapper that steps an environment with MJX's own functions."""

from brax.envs import State

from jaxrl.envs.wrapper import Wrapper
from jaxrl.physics import mjx_patches
from jaxrl.types import Array


class StockPhysics(Wrapper):
    """Trace the physics of an environment without this package's replacements."""

    def reset(self, rng: Array) -> State:
        """Start an episode."""
        with mjx_patches.stock():
            return self._env.reset(rng)

    def step(self, state: State, action: Array) -> State:
        """Step the environment."""
        with mjx_patches.stock():
            return self._env.step(state, action)
