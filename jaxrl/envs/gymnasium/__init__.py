"""Gymnasium environments (`--env gym:<id>`), stepped on the CPU in worker processes.

`GymnasiumEnv` describes them to an algorithm; `EnvGroup` steps some in this process, and
`EnvWorker` in a process of its own, which does not import JAX. A `WorkerGroup` is one group on
several of them.
"""

from typing import TYPE_CHECKING

from jaxrl.utils import lazy

if TYPE_CHECKING:
    from jaxrl.envs.gymnasium.env import GymnasiumEnv
    from jaxrl.envs.gymnasium.workers import (
        EnvGroup,
        EnvWorker,
        EpisodeBuffer,
        GroupStep,
        GymSpec,
        WorkerGroup,
    )

__all__ = [
    "EnvGroup",
    "EnvWorker",
    "EpisodeBuffer",
    "GroupStep",
    "GymSpec",
    "GymnasiumEnv",
    "WorkerGroup",
]

__getattr__ = lazy.exports(
    __name__,
    {
        "EnvGroup": "workers",
        "EnvWorker": "workers",
        "EpisodeBuffer": "workers",
        "GroupStep": "workers",
        "GymSpec": "workers",
        "GymnasiumEnv": "env",
        "WorkerGroup": "workers",
    },
)
