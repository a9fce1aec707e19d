"""Named configurations of motion imitation."""

from dataclasses import replace
from typing import Any

from jaxrl.config import MotionConfig, NetworkConfig, StyleConfig
from jaxrl.presets.making import preset

_TRACKER = NetworkConfig(
    hidden=(512, 256, 128),
    critic_hidden=(512, 256, 128),
    distribution="normal",
    state_dependent_std=False,
    init_std=0.2,
)
_LARGE = replace(_TRACKER, hidden=(1024, 512, 256), critic_hidden=(1024, 512, 256))
_LEARNING: dict[str, Any] = {
    "rollout_length": 16,
    "update_epochs": 4,
    "gamma": 0.97,
    "schedule": "adaptive_kl",
    "learning_rate": 3e-4,
    "desired_kl": 0.02,
}
_WALK = MotionConfig(loop_seconds=5.0, power_coef=1e-4)
# Without --motion.clips all of them follow a small generated clip.
PRESETS = {
    "imitate-walk": preset(
        "imitation",
        name="imitate-walk",
        steps=30e6,
        num_envs=4096,
        epochs=10,
        cycles=2,
        network=_TRACKER,
        motion=_WALK,
        num_minibatches=8,
        **_LEARNING,
    ),
    "imitate": preset(
        "imitation",
        name="imitate",
        steps=400e6,
        num_envs=8192,
        epochs=40,
        cycles=2,
        network=_LARGE,
        motion=MotionConfig(power_coef=1e-4),
        num_minibatches=16,
        **_LEARNING,
    ),
    "amp-walk": preset(
        "stroll",
        name="amp-walk",
        steps=100e6,
        num_envs=4096,
        epochs=10,
        cycles=2,
        network=replace(_TRACKER, init_std=0.05, fixed_std=True),
        motion=replace(_WALK, power_coef=0.0),
        style=StyleConfig(weight=0.5, task_weight=0.5),
        num_minibatches=8,
        **_LEARNING,
    ),
}
