"""Settings of `--smoke`: tasks and shapes so small that runs only show that they work."""

from typing import Any

_ALL: dict[str, Any] = {
    "devices": 1,
    "total_steps": None,  # a study may set them
    "epochs": 2,
    "cycles": 1,
    "eval.num_envs": 4,
    "network.hidden": (8,),
    "network.critic_hidden": (8,),
}
_ON_POLICY: dict[str, Any] = _ALL | {
    "num_envs": 8,
    "iterations": 2,
    "task.episode_length": 20,
}
PPO: dict[str, Any] = _ON_POLICY | {"ppo.num_minibatches": 2, "ppo.rollout_length": 8}
REPPO: dict[str, Any] = _ON_POLICY | {
    "reppo.num_minibatches": 2,
    "reppo.rollout_length": 8,
    "reppo.update_epochs": 2,
}
PQN: dict[str, Any] = _ON_POLICY | {
    "pqn.num_minibatches": 2,
    "pqn.rollout_length": 8,
    "pqn.update_epochs": 2,
}
REPLAY: dict[str, Any] = _ALL | {
    "num_envs": 4,
    "iterations": 16,
    "task.episode_length": 8,
    "offpolicy.buffer_size": 256,
    "offpolicy.warmup": 32,
    "offpolicy.train_batches": 2,
    "offpolicy.batch_size": 8,
    "rrd.batch_size": 8,
    "rrd.sample_size": 4,
}
OF_SECTION = {"ppo": PPO, "reppo": REPPO, "pqn": PQN, "offpolicy": REPLAY}
# Physics takes minutes to compile on a small machine.
NO_PHYSICS: dict[str, Any] = {"env": "pendulum", "backend": None}
