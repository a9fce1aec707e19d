"""Named configurations of motion imitation."""

from typing import Any

from jaxrl.config import TrainConfig
from jaxrl.config.presets.builder import preset, under

_TRACKER = under(
    "network",
    hidden=(512, 256, 128),
    critic_hidden=(512, 256, 128),
    distribution="normal",
    state_dependent_std=False,
    init_std=0.2,
)
_LARGE = under("network", hidden=(1024, 512, 256), critic_hidden=(1024, 512, 256))
_SMALL = under("network", hidden=(128, 64), critic_hidden=(128, 64))
_LEARNING = under("ppo", rollout_length=16, gamma=0.97, learning_rate=3e-4, schedule="adaptive_kl")
_WALK = under("motion", loop_seconds=5.0, power_coef=1e-4)
# Captured clips break laws of physics here and there: jumps that fall too slowly, roots that jerk.
# To get past such a place one must stray from it, farther than a walk ever has to.
_MANY = under("motion", power_coef=1e-4, future=(1, 2, 5), distance=0.5)
_ROBUST = under("motion", push=0.5, push_every=2.0, fallen_starts=0.2, recovery_seconds=5.0)
_HEADING = under("motion", loop_seconds=5.0, power_coef=0.0)
_STEER = under("motion", speeds=(0.7, 3.5), command_every=3.0, mirror=True)
_AMP = under("network", init_std=0.05, fixed_std=True) | {
    "ppo.schedule": "constant",
    "ppo.learning_rate": 1e-4,
    "ppo.num_minibatches": 4,
    "amp.weight": 0.5,
    "amp.task_weight": 0.5,
    # Ten frames are a thousand numbers: without a strong penalty the discriminator is certain at
    # once, and hardly rewards better motion more.
    "amp.gradient_penalty": 20.0,
}


def _imitate(steps: float, *changes: dict[str, Any]) -> TrainConfig:
    return preset("imitation", steps, _TRACKER, _LEARNING, *changes)


def _amp(steps: float, *changes: dict[str, Any]) -> TrainConfig:
    return preset("heading", steps, _TRACKER, _LEARNING, _HEADING, _AMP, *changes)


_WALK_UPDATES = under("ppo", update_epochs=4, num_minibatches=8, desired_kl=0.02)
_MANY_UPDATES = under("ppo", update_epochs=5, num_minibatches=4, desired_kl=0.04)
# For two cores, which compile the physics for minutes, and step it 2,000 times a second.
_TINY = {"num_envs": 64, "epochs": 5, "cycles": 2, "eval.num_envs": 8} | _SMALL
# Without --motion.clips all of them follow a small generated clip.
PRESETS = {
    "imitate-walk": _imitate(30e6, _WALK, _WALK_UPDATES),
    "imitate-walk-tiny": _imitate(
        2e5,
        _WALK,
        {"motion.loop_seconds": 2.0},
        _WALK_UPDATES,
        {"ppo.num_minibatches": 4},
        _TINY,
    ),
    "imitate": _imitate(400e6, _MANY, _MANY_UPDATES, _LARGE, {"epochs": 40, "cycles": 4}),
    # Not trained yet.
    "imitate-recover": _imitate(
        400e6, _MANY, _ROBUST, _MANY_UPDATES, _LARGE, {"epochs": 40, "cycles": 4}
    ),
    "imitate-tiny": _imitate(2e5, _MANY, _MANY_UPDATES, _TINY),
    "amp-walk": _amp(40e6),
    # For a folder of walks and runs; not trained yet.
    "amp-steer": _amp(100e6, _STEER),
    "amp-walk-tiny": _amp(
        2e5, _TINY, under("amp", hidden=(128, 64), batch_size=256, replay=10_000)
    ),
}
