"""Environments: built by name, vectorised on the device, or stepped by Gymnasium on the CPU.

`build(config)` returns the environments of a run; `VectorEnv` is their interface on the device.
`hooks` lists the optional methods by which an environment's task reaches training and reports.
"""

from typing import TYPE_CHECKING

from jaxrl.utils import lazy

if TYPE_CHECKING:
    from jaxrl.envs.env_state import LazyEnv, PackedEnvState, Template
    from jaxrl.envs.factory import build, for_evaluation, for_rendering
    from jaxrl.envs.gymnasium import GymnasiumEnv
    from jaxrl.envs.registry import make
    from jaxrl.envs.vector_env import EnvState, StepResult, VectorEnv

__all__ = [
    "OBS_LIMIT",
    "EnvState",
    "GymnasiumEnv",
    "LazyEnv",
    "PackedEnvState",
    "StepResult",
    "Template",
    "VectorEnv",
    "build",
    "for_evaluation",
    "for_rendering",
    "make",
]

# Larger observations count as non-finite: physics passes this on its way to NaN, and the square
# of more overflows. Here, because worker processes of Gymnasium environments import no JAX.
OBS_LIMIT = 1e10

__getattr__ = lazy.exports(
    __name__,
    {
        "EnvState": "vector_env",
        "GymnasiumEnv": "gymnasium",
        "LazyEnv": "env_state",
        "PackedEnvState": "env_state",
        "StepResult": "vector_env",
        "Template": "env_state",
        "VectorEnv": "vector_env",
        "build": "factory",
        "for_evaluation": "factory",
        "for_rendering": "factory",
        "make": "registry",
    },
)
