"""Gymnasium environments (`--env gym:<id>`), stepped on the CPU in worker processes.

`GymnasiumEnv` describes them to an algorithm; `EnvGroup` steps some in this process, and
`EnvWorker` in a process of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.envs.gymnasium.env import GymnasiumEnv, build
    from jaxrl.envs.gymnasium.workers import (
        EnvGroup,
        EnvWorker,
        EpisodeBuffer,
        GroupStep,
        GymSpec,
    )

__all__ = [
    "EnvGroup",
    "EnvWorker",
    "EpisodeBuffer",
    "GroupStep",
    "GymSpec",
    "GymnasiumEnv",
    "build",
]


def __getattr__(name: str) -> Any:
    """Import on first use: workers must not import JAX, which `env` needs."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = "env" if name in ("GymnasiumEnv", "build") else "workers"
    return getattr(import_module(f"{__name__}.{module}"), name)
