"""Settings of a run: frozen dataclasses, their validation, presets and JSON form.

Every setting is declared once, in `schema` or `algorithms`, with `metadata.setting`; `settings`
answers what was declared. Nothing here imports JAX, so that `--help` and every error about settings
come at once.
"""

from jaxrl.config.algorithms import (
    AMPConfig,
    LearningConfig,
    OffPolicyConfig,
    OnPolicyConfig,
    PPOConfig,
    PQNConfig,
    REPPOConfig,
    RRDConfig,
)
from jaxrl.config.schema import (
    CheckpointConfig,
    DataConfig,
    EvalConfig,
    LogConfig,
    MotionConfig,
    NetworkConfig,
    PickConfig,
    TaskConfig,
    TrainConfig,
)

__all__ = [
    "CheckpointConfig",
    "DataConfig",
    "EvalConfig",
    "LearningConfig",
    "LogConfig",
    "MotionConfig",
    "NetworkConfig",
    "OffPolicyConfig",
    "OnPolicyConfig",
    "PPOConfig",
    "PQNConfig",
    "PickConfig",
    "AMPConfig",
    "REPPOConfig",
    "RRDConfig",
    "TaskConfig",
    "TrainConfig",
]
