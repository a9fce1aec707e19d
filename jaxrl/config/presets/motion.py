"""Named configurations of motion imitation."""

from dataclasses import replace
from typing import Any

from jaxrl.config import AMPConfig, MotionConfig, NetworkConfig, TrainConfig
from jaxrl.config.presets.builder import preset

_TRACKER = NetworkConfig(
    hidden=(512, 256, 128),
    critic_hidden=(512, 256, 128),
    distribution="normal",
    state_dependent_std=False,
    init_std=0.2,
)
_LARGE = replace(_TRACKER, hidden=(1024, 512, 256), critic_hidden=(1024, 512, 256))
_SMALL = replace(_TRACKER, hidden=(128, 64), critic_hidden=(128, 64))
_LEARNING: dict[str, Any] = {
    "rollout_length": 16,
    "gamma": 0.97,
    "schedule": "adaptive_kl",
    "learning_rate": 3e-4,
}
_WALK = MotionConfig(loop_seconds=5.0, power_coef=1e-4)
# Captured clips break laws of physics here and there: jumps that fall too slowly, roots that jerk.
# To get past such a place one must stray from it, farther than a walk ever has to.
_MANY = MotionConfig(power_coef=1e-4, future=(1, 2, 5), distance=0.5)
_HEADING = replace(_WALK, power_coef=0.0)
_STEADY = replace(_TRACKER, init_std=0.05, fixed_std=True)
# Ten frames are a thousand numbers: without a strong penalty the discriminator is sure of itself at
# once, and pays hardly more for better motion.
_AMP = AMPConfig(weight=0.5, task_weight=0.5, gradient_penalty=20.0)


def _imitate(name: str, network: NetworkConfig, motion: MotionConfig, **more: Any) -> TrainConfig:
    return preset("imitation", name=name, network=network, motion=motion, **_LEARNING, **more)


def _amp(name: str, network: NetworkConfig, amp: AMPConfig, **more: Any) -> TrainConfig:
    steady: dict[str, Any] = _LEARNING | {"schedule": "constant", "learning_rate": 1e-4}
    return preset("heading", name=name, network=network, motion=_HEADING, amp=amp, **steady, **more)


# For two cores, which compile the physics for minutes, and step it 2,000 times a second.
_TINY: dict[str, Any] = {"num_envs": 64, "epochs": 5, "cycles": 2, "eval_envs": 8}
# Without --motion.clips all of them follow a small generated clip.
PRESETS = {
    "imitate-walk": _imitate(
        "imitate-walk",
        _TRACKER,
        _WALK,
        steps=30e6,
        num_envs=4096,
        epochs=10,
        cycles=2,
        update_epochs=4,
        num_minibatches=8,
        desired_kl=0.02,
    ),
    "imitate-walk-tiny": _imitate(
        "imitate-walk-tiny",
        _SMALL,
        replace(_WALK, loop_seconds=2.0),
        steps=2e5,
        update_epochs=4,
        num_minibatches=4,
        desired_kl=0.02,
        **_TINY,
    ),
    "imitate": _imitate(
        "imitate",
        _LARGE,
        _MANY,
        steps=400e6,
        num_envs=4096,
        epochs=40,
        cycles=4,
        update_epochs=5,
        num_minibatches=4,
        desired_kl=0.04,
    ),
    "imitate-tiny": _imitate(
        "imitate-tiny",
        _SMALL,
        _MANY,
        steps=2e5,
        update_epochs=5,
        num_minibatches=4,
        desired_kl=0.04,
        **_TINY,
    ),
    "amp-walk": _amp(
        "amp-walk",
        _STEADY,
        _AMP,
        steps=40e6,
        num_envs=4096,
        epochs=10,
        cycles=2,
        num_minibatches=4,
    ),
    "amp-walk-tiny": _amp(
        "amp-walk-tiny",
        replace(_SMALL, init_std=0.05, fixed_std=True),
        replace(_AMP, hidden=(128, 64), batch_size=256, replay=10_000),
        steps=2e5,
        num_minibatches=4,
        **_TINY,
    ),
}
