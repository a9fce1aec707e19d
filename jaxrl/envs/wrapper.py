"""A wrapper of a Brax environment that forwards whatever it does not change."""

from typing import Any

from brax.envs import Env


class Wrapper(Env):
    """Forward every public attribute to the wrapped environment."""

    def __init__(self, env: Any):
        self._env = env

    @property
    def observation_size(self):
        """The wrapped environment's."""
        return self._env.observation_size

    @property
    def action_size(self) -> int:
        """The wrapped environment's."""
        return self._env.action_size

    @property
    def backend(self) -> str:
        """The wrapped environment's."""
        return self._env.backend

    def __getattr__(self, name: str) -> Any:
        """Forward every other public attribute: num_actions, episode_length, ..."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._env, name)

    @property
    def unwrapped(self) -> Any:
        """The environment inside every wrapper."""
        return self._env.unwrapped
