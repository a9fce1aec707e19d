"""How a preset is put together."""

import math
from dataclasses import replace
from typing import Any

from jaxrl.config import (
    AMPConfig,
    EvalConfig,
    MotionConfig,
    NetworkConfig,
    OffPolicyConfig,
    PPOConfig,
    TaskConfig,
    TrainConfig,
)


def preset(
    env: str,
    *,
    steps: float,
    num_envs: int = 4096,
    epochs: int = 10,
    cycles: int = 2,
    backend: str | None = None,
    task: TaskConfig | None = None,
    network: NetworkConfig | None = None,
    motion: MotionConfig | None = None,
    amp: AMPConfig | None = None,
    eval_envs: int = 128,
    sampled_eval: bool = False,
    name: str | None = None,
    devices: int | None = None,
    algo: Any = "ppo",
    **learning: Any,
) -> TrainConfig:
    """Build a configuration that trains for about `steps` environment steps."""
    on_policy = algo == "ppo"
    config = TrainConfig(
        env=env,
        algo=algo,
        backend=backend,
        num_envs=num_envs,
        epochs=epochs,
        cycles=cycles,
        task=task or TaskConfig(),
        network=network or NetworkConfig(),
        motion=motion or MotionConfig(),
        amp=amp or AMPConfig(),
        ppo=PPOConfig(**(learning if on_policy else {})),
        offpolicy=OffPolicyConfig(**({} if on_policy else learning)),
        eval=EvalConfig(num_envs=eval_envs, deterministic=not sampled_eval),
        preset=name or env,
        devices=devices,
    )
    iterations = math.ceil(steps / (config.steps_per_iteration * epochs * cycles))
    return replace(config, iterations=iterations)
