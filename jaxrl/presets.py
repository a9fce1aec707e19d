"""Named configurations: values, not flags. Any field can be overridden on the command line."""

import math
from dataclasses import replace
from typing import Any

from jaxrl.config import EvalConfig, NetworkConfig, PPOConfig, TaskConfig, TrainConfig
from jaxrl.errors import UserError, nearest


def _preset(
    env: str,
    *,
    steps: float,
    num_envs: int = 4096,
    epochs: int = 10,
    cycles: int = 2,
    backend: str | None = None,
    task: TaskConfig | None = None,
    network: NetworkConfig | None = None,
    eval_envs: int = 128,
    sampled_eval: bool = False,
    preset: str | None = None,
    devices: int | None = None,
    **ppo: Any,
) -> TrainConfig:
    """Build a configuration that trains for about `steps` environment steps."""
    config = TrainConfig(
        env=env,
        backend=backend,
        num_envs=num_envs,
        epochs=epochs,
        cycles=cycles,
        task=task or TaskConfig(),
        network=network or NetworkConfig(),
        ppo=PPOConfig(**ppo),
        eval=EvalConfig(num_envs=eval_envs, deterministic=not sampled_eval),
        preset=preset or env,
        devices=devices,
    )
    iterations = math.ceil(steps / (config.steps_per_iteration * epochs * cycles))
    return replace(config, iterations=iterations)


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
    "ant": _preset(
        "ant",
        backend="spring",
        steps=60e6,
        num_envs=8192,
        epochs=8,
        cycles=4,
        rollout_length=8,
        num_minibatches=4,
        gamma=0.97,
        reward_scale=0.1,
        entropy_coef=5e-3,
        **_FAST,
    ),
    "halfcheetah": _preset(
        "halfcheetah", backend="spring", steps=50e6, gamma=0.99, reward_scale=0.1, **_FAST
    ),
    # A falling body: what comes after the next second must count, or it learns to leap and fall.
    "hopper": _preset("hopper", backend="spring", steps=50e6, **_BALANCING),
    "walker2d": _preset("walker2d", backend="positional", steps=60e6, **_BALANCING),
    "swimmer": _preset("swimmer", backend="generalized", steps=30e6, gamma=0.995, **_ADAPTIVE),
    "humanoid": _preset(
        "humanoid",
        backend="mjx",
        steps=50e6,
        epochs=6,
        cycles=4,
        num_minibatches=4,
        gamma=0.97,
        reward_scale=0.1,
        entropy_coef=1e-3,
        **_ADAPTIVE,
    ),
    "humanoidstandup": _preset(
        "humanoidstandup", backend="mjx", steps=50e6, gamma=0.97, reward_scale=0.01, **_ADAPTIVE
    ),
    "reacher": _preset(
        "reacher",
        backend="mjx",
        steps=20e6,
        gamma=0.95,
        task=TaskConfig(action_repeat=4),
        network=_WIDE_AWAKE,
        **_FAST,
    ),
    "pusher": _preset(
        "pusher", backend="generalized", steps=50e6, gamma=0.95, network=_WIDE_AWAKE, **_FAST
    ),
    # Once the pole stands, advantages are noise: small steps keep noise from tipping it over.
    "inverted_pendulum": _preset(
        "inverted_pendulum",
        backend="mjx",
        steps=2e6,
        num_envs=2048,
        gamma=0.97,
        **_STEADY,
    ),
    "inverted_double_pendulum": _preset(
        "inverted_double_pendulum",
        backend="mjx",
        steps=10e6,
        num_envs=2048,
        gamma=0.99,
        reward_scale=0.1,
        max_learning_rate=1e-3,
        **_ADAPTIVE,
    ),
    "fast": _preset("fast", steps=5e4, num_envs=64, epochs=2, network=_SMALL, eval_envs=16),
    "cartpole": _preset(
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
    "pendulum": _preset(
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
_REMEMBERING = NetworkConfig(hidden=(128,), critic_hidden=(128,), memory="lstm", memory_size=128)
_SEGMENTS: dict[str, Any] = {
    "rollout_length": 64,
    "gamma": 0.99,
    "entropy_coef": 5e-3,
    "max_learning_rate": 5e-3,  # faster, and memory saturates
}
PRESETS["arena"] = _preset(
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
PRESETS["arena-small"] = _preset(
    "arena",
    preset="arena-small",
    steps=1e6,
    num_envs=64,
    epochs=5,
    network=replace(_REMEMBERING, hidden=(64,), critic_hidden=(64,), memory_size=64),
    eval_envs=32,
    update_epochs=2,
    num_minibatches=8,
    sampled_eval=True,
    **_SEGMENTS,
    **_ADAPTIVE,
)
PRESETS["memory"] = _preset(
    "recall",
    preset="memory",
    steps=1e6,
    num_envs=256,
    epochs=4,
    cycles=4,
    network=NetworkConfig(hidden=(32,), critic_hidden=(32,), memory="lstm", memory_size=32),
    gamma=0.9,
    rollout_length=64,
    bptt_horizon=32,
    num_minibatches=8,
    update_epochs=2,
    learning_rate=3e-3,
    entropy_coef=1e-2,
)
PRESETS["quickstart"] = _preset(
    "inverted_pendulum",
    preset="quickstart",
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
PRESETS["gym-cartpole"] = _preset(
    "gym:CartPole-v1",
    preset="gym-cartpole",
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


def get(name: str) -> TrainConfig:
    """Return a preset by name."""
    if name not in PRESETS:
        known = ", ".join(sorted(PRESETS))
        raise UserError(f"Unknown preset '{name}'.{nearest(name, PRESETS)} Known: {known}.")
    return PRESETS[name]


def table() -> str:
    """Return all presets as a Markdown table."""
    lines = ["| preset | environment | backend | environments | steps |", "|---|---|---|---:|---:|"]
    for name, c in sorted(PRESETS.items()):
        if name == "custom":
            continue
        steps = c.total_iterations * c.steps_per_iteration
        millions = f"{steps / 1e6:.0f}" if steps >= 1e7 else f"{steps / 1e6:.2g}"
        row = (f"`{name}`", c.env, c.backend or "-", f"{c.num_envs:,}", f"{millions} M")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
