"""Named configurations of PPO."""

from dataclasses import replace
from typing import Any

from jaxrl.config import NetworkConfig, PPOConfig, TaskConfig, TrainConfig
from jaxrl.config.presets.builder import preset

_ADAPTIVE: dict[str, Any] = {"schedule": "adaptive_kl", "learning_rate": 1e-3, "desired_kl": 0.01}
_FAST: dict[str, Any] = _ADAPTIVE | {"desired_kl": 0.02}
_BALANCING: dict[str, Any] = _FAST | {"gamma": 0.997, "reward_scale": 0.1, "entropy_coef": 5e-3}
_STEADY: dict[str, Any] = {
    "schedule": "adaptive_kl",
    "learning_rate": 3e-4,
    "max_learning_rate": 3e-4,
    "desired_kl": 0.005,
}
# A spread that shrinks with the error shrinks the steps KL allows too, until nothing moves.
_WIDE_AWAKE = NetworkConfig(
    hidden=(128, 128), critic_hidden=(256, 256), state_dependent_std=False, min_std=0.1
)
_SMALL = NetworkConfig(hidden=(32, 32), critic_hidden=(64, 64))

PRESETS: dict[str, TrainConfig] = {
    "ant": preset(
        "ant",
        backend="spring",
        steps=60e6,
        num_envs=8192,
        epochs=8,
        cycles=4,
        network=NetworkConfig(critic_hidden=(64, 64, 64)),
        num_minibatches=4,
        gamma=0.97,
        reward_scale=0.1,
        entropy_coef=5e-3,
        **_FAST,
    ),
    "halfcheetah": preset(
        "halfcheetah", backend="spring", steps=50e6, gamma=0.99, reward_scale=0.1, **_FAST
    ),
    # A falling body: what comes after the next second must count, or it learns to leap and fall.
    "hopper": preset("hopper", backend="spring", steps=50e6, **_BALANCING),
    "walker2d": preset("walker2d", backend="positional", steps=60e6, **_BALANCING),
    "swimmer": preset("swimmer", backend="generalized", steps=30e6, gamma=0.995, **_ADAPTIVE),
    "humanoid": preset(
        "humanoid",
        backend="mjx",
        steps=50e6,
        epochs=6,
        cycles=8,
        num_minibatches=4,
        gamma=0.97,
        reward_scale=0.1,
        entropy_coef=5e-3,  # with 1e-3 many seeds stay with the first gait they find
        **_ADAPTIVE,
    ),
    "humanoidstandup": preset(
        "humanoidstandup", backend="mjx", steps=50e6, gamma=0.97, reward_scale=0.01, **_ADAPTIVE
    ),
    "reacher": preset(
        "reacher",
        backend="mjx",
        steps=30e6,
        gamma=0.95,
        task=TaskConfig(action_repeat=4),
        network=replace(_WIDE_AWAKE, min_std=0.03),  # 0.1 keeps it from coming closer
        **_FAST,
    ),
    "pusher": preset(
        "pusher", backend="generalized", steps=50e6, gamma=0.95, network=_WIDE_AWAKE, **_FAST
    ),
    # Once the pole stands, advantages are noise: small steps keep noise from tipping it over.
    "inverted_pendulum": preset(
        "inverted_pendulum",
        backend="mjx",
        steps=2e6,
        num_envs=2048,
        gamma=0.97,
        **_STEADY,
    ),
    "inverted_double_pendulum": preset(
        "inverted_double_pendulum",
        backend="mjx",
        steps=10e6,
        num_envs=2048,
        gamma=0.99,
        reward_scale=0.1,
        max_learning_rate=1e-3,
        **_ADAPTIVE,
    ),
    "fast": preset("fast", steps=5e4, num_envs=64, epochs=2, network=_SMALL, eval_envs=16),
    "cartpole": preset(
        "cartpole",
        steps=5e5,
        num_envs=256,
        epochs=5,
        network=_SMALL,
        gamma=0.98,
        rollout_length=32,
        learning_rate=2e-3,
        schedule="linear",
    ),
    "pendulum": preset(
        "pendulum",
        steps=1e6,
        num_envs=256,
        epochs=8,
        network=NetworkConfig(hidden=(64, 64), critic_hidden=(64, 64)),
        gamma=0.95,
        rollout_length=32,
        reward_scale=0.1,
        **_ADAPTIVE,
    ),
}
# The batch of Metta's trainer: 524,288 steps as 8,192 rows (2,048 × 4 agents) of 64.
_REMEMBERING = NetworkConfig(hidden=(128,), critic_hidden=(128,), rnn="lstm", rnn_size=128)
_SEGMENTS: dict[str, Any] = {
    "rollout_length": 64,
    "gamma": 0.99,
    "entropy_coef": 5e-3,
    "max_learning_rate": 5e-3,  # faster, and memory saturates
}
PRESETS["arena"] = preset(
    "arena",
    steps=60e6,
    num_envs=2048,
    epochs=10,
    cycles=4,
    network=_REMEMBERING,
    update_epochs=1,
    num_minibatches=32,
    sampled_eval=True,
    **_SEGMENTS,
    **_ADAPTIVE,
)
PRESETS["arena-small"] = preset(
    "arena",
    name="arena-small",
    steps=1e6,
    num_envs=64,
    epochs=5,
    network=replace(_REMEMBERING, hidden=(64,), critic_hidden=(64,), rnn_size=64),
    eval_envs=32,
    update_epochs=2,
    num_minibatches=8,
    sampled_eval=True,
    **_SEGMENTS,
    **_ADAPTIVE,
)
PRESETS["memory"] = preset(
    "recall",
    name="memory",
    steps=1e6,
    num_envs=256,
    epochs=4,
    cycles=4,
    network=NetworkConfig(hidden=(32,), critic_hidden=(32,), rnn="lstm", rnn_size=32),
    gamma=0.9,
    rollout_length=64,
    bptt_horizon=32,
    num_minibatches=8,
    update_epochs=2,
    learning_rate=3e-3,
    entropy_coef=1e-2,
)
PRESETS["quickstart"] = preset(
    "inverted_pendulum",
    name="quickstart",
    backend="generalized",
    steps=6e5,
    num_envs=256,
    epochs=9,
    cycles=1,
    network=_SMALL,
    eval_envs=64,
    gamma=0.97,
    learning_rate=1e-3,
    schedule="linear",
)
PRESETS["gym-cartpole"] = preset(
    "gym:CartPole-v1",
    name="gym-cartpole",
    devices=1,
    steps=2e5,
    num_envs=32,
    epochs=5,
    network=_SMALL,
    eval_envs=16,
    gamma=0.98,
    rollout_length=64,
    num_minibatches=4,
    update_epochs=8,
    learning_rate=2e-3,
    schedule="linear",
)
# The starting point for an environment of one's own.
PRESETS["custom"] = TrainConfig(num_envs=1024, ppo=PPOConfig(**_ADAPTIVE))
