"""A wrapper that chooses the functions that MuJoCo's physics is stepped with."""

from typing import Any

from brax.envs import State

from jaxrl.envs.wrapper import Wrapper
from jaxrl.physics import mjx_patches
from jaxrl.types import Array


class WithPhysics(Wrapper):
    """Trace the physics of an environment with some functions; see `mjx_patches.use`."""

    def __init__(self, env: Any, functions: mjx_patches.Functions):
        super().__init__(env)
        self._functions: mjx_patches.Functions = functions

    def reset(self, rng: Array, *arguments: Any, **named: Any) -> State:
        """Start an episode."""
        with mjx_patches.use(self._functions):
            return self._env.reset(rng, *arguments, **named)

    def step(self, state: State, action: Array, *arguments: Any, **named: Any) -> State:
        """Step the environment."""
        with mjx_patches.use(self._functions):
            return self._env.step(state, action, *arguments, **named)
