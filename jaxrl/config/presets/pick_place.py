"""Named configurations of picking and placing."""

from dataclasses import replace
from typing import Any

from jaxrl.config import NetworkConfig, PickConfig, TrainConfig
from jaxrl.config.presets.builder import preset

_SMALL = NetworkConfig(
    hidden=(64, 64),
    critic_hidden=(128, 128),
    activation="elu",
    distribution="normal",
    state_dependent_std=False,
    init_std=0.6,
)
_LARGE = replace(_SMALL, hidden=(256, 128, 64), critic_hidden=(256, 256, 128))
_LEARNING: dict[str, Any] = {
    "gamma": 0.97,
    "schedule": "adaptive_kl",
    "learning_rate": 1e-3,
    "desired_kl": 0.015,
}


def _pick(difficulty: Any, name: str, **settings: Any) -> TrainConfig:
    return replace(
        preset("pick_place", name=name, **settings), pick=PickConfig(difficulty=difficulty)
    )


PRESETS: dict[str, TrainConfig] = {
    # Two cores, a few minutes.
    "pick-place-easy": _pick(
        "easy",
        "pick-place-easy",
        steps=4e5,
        num_envs=128,
        epochs=8,
        cycles=2,
        network=_SMALL,
        eval_envs=64,
        rollout_length=32,
        update_epochs=6,
        num_minibatches=4,
        **_LEARNING,
    ),
    "pick-place": _pick(
        "curriculum",
        "pick-place",
        steps=14e6,
        num_envs=4096,
        epochs=6,
        cycles=6,
        network=_LARGE,
        eval_envs=1024,
        rollout_length=16,
        update_epochs=4,
        num_minibatches=8,
        **_LEARNING,
    ),
    "pick-place-sac": _pick(
        "medium",
        "pick-place-sac",
        algo="sac",
        steps=2e6,
        num_envs=256,
        epochs=10,
        cycles=4,
        network=NetworkConfig(hidden=(256, 256), critic_hidden=(256, 256), activation="relu"),
        gamma=0.97,
        train_batches=64,
        batch_size=256,
        warmup=8192,
    ),
}
