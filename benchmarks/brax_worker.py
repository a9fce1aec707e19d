"""Train with brax's own PPO or SAC and its published settings; print one JSON line per evaluation.

    python -m benchmarks.brax_worker ant --backend spring --seed 0

Run by benchmarks.baselines, in a process of its own. brax 0.14.2 calls a function that JAX has
since removed; the shim below stands in for it and changes nothing else.
"""

import argparse
import functools
import json
import os
import time
from typing import Any

# Settings of brax's training notebook; episodes have 1000 steps unless set.
_PPO: dict[str, Any] = {"learning_rate": 3e-4, "normalize_observations": True}
_SHORT: dict[str, Any] = {
    "reward_scaling": 10,
    "unroll_length": 5,
    "num_minibatches": 32,
    "num_updates_per_batch": 4,
    "discounting": 0.97,
    "entropy_cost": 1e-2,
}
PPO: dict[str, dict[str, Any]] = {
    "ant": _SHORT | {"num_timesteps": 50_000_000, "num_envs": 4096, "batch_size": 2048},
    "humanoid": {
        "num_timesteps": 50_000_000,
        "reward_scaling": 0.1,
        "unroll_length": 10,
        "num_minibatches": 32,
        "num_updates_per_batch": 8,
        "discounting": 0.97,
        "entropy_cost": 1e-3,
        "num_envs": 2048,
        "batch_size": 1024,
    },
    "halfcheetah": {
        "num_timesteps": 50_000_000,
        "reward_scaling": 1,
        "unroll_length": 20,
        "num_minibatches": 32,
        "num_updates_per_batch": 8,
        "discounting": 0.95,
        "entropy_cost": 1e-3,
        "num_envs": 2048,
        "batch_size": 512,
    },
    "reacher": {
        "num_timesteps": 50_000_000,
        "reward_scaling": 5,
        "unroll_length": 50,
        "num_minibatches": 32,
        "num_updates_per_batch": 8,
        "discounting": 0.95,
        "entropy_cost": 1e-3,
        "num_envs": 2048,
        "batch_size": 256,
        "action_repeat": 4,
    },
    "pusher": {
        "num_timesteps": 50_000_000,
        "reward_scaling": 5,
        "unroll_length": 30,
        "num_minibatches": 16,
        "num_updates_per_batch": 8,
        "discounting": 0.95,
        "entropy_cost": 1e-2,
        "num_envs": 2048,
        "batch_size": 512,
    },
    "inverted_pendulum": _SHORT
    | {"num_timesteps": 2_000_000, "num_envs": 2048, "batch_size": 1024},
    "fast": {  # for --quick: trivial physics
        "num_timesteps": 4_000,
        "unroll_length": 5,
        "num_minibatches": 2,
        "num_updates_per_batch": 1,
        "num_envs": 16,
        "batch_size": 16,
        "episode_length": 100,
        "num_eval_envs": 8,
    },
}
PPO["inverted_double_pendulum"] = PPO["inverted_pendulum"] | {"num_timesteps": 20_000_000}
_SAC: dict[str, Any] = {
    "learning_rate": 6e-4,
    "normalize_observations": True,
    "discounting": 0.997,
    "num_envs": 128,
    "min_replay_size": 8192,
    "max_replay_size": 1_048_576,
}
SAC: dict[str, dict[str, Any]] = {
    "hopper": {
        "num_timesteps": 6_553_600,
        "reward_scaling": 30,
        "batch_size": 512,
        "grad_updates_per_step": 64,
    },
    "walker2d": {
        "num_timesteps": 7_864_320,
        "reward_scaling": 5,
        "batch_size": 128,
        "grad_updates_per_step": 32,
    },
}


SETTINGS_OF_SAC = {task: _SAC | settings for task, settings in SAC.items()}
SETTINGS_OF_SAC["fast"] = {  # for --quick
    "num_timesteps": 2_000,
    "num_envs": 16,
    "min_replay_size": 64,
    "max_replay_size": 1024,
    "batch_size": 16,
    "grad_updates_per_step": 2,
    "episode_length": 100,
    "num_eval_envs": 8,
}


def patch_jax() -> None:
    """Restore a function of JAX that brax calls: one copy per device along a leading axis."""
    import jax
    import jax.numpy as jnp

    def replicated(tree: Any, devices: list) -> Any:
        return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * len(devices)), tree)

    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = replicated


def fill_replay() -> None:
    """Start with brax's replay full (of zeros), as it is for most of a run."""
    from brax.training import replay_buffers

    empty = replay_buffers.UniformSamplingQueue.init

    def full(self: Any, key: Any) -> Any:
        state = empty(self, key)
        full_at = state.insert_position + len(state.data)
        return state.replace(insert_position=full_at)  # type: ignore[attr-defined]

    replay_buffers.UniformSamplingQueue.init = full


def main() -> None:
    # Memory is allocated as JAX does by default, not as jaxrl chose in the parent process.
    os.environ.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[*PPO, *SAC])
    parser.add_argument("--backend")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evals", type=int, default=10)
    parser.add_argument("--steps", type=int, help="instead of the published number")
    parser.add_argument("--sac", action="store_true", help="SAC, where brax publishes both")
    parser.add_argument("--full-replay", action="store_true", help="to measure rates, not returns")
    arguments = parser.parse_args()
    patch_jax()
    if arguments.full_replay:
        fill_replay()
    from brax import envs
    from brax.training.agents.ppo import train as ppo
    from brax.training.agents.sac import train as sac

    began = time.monotonic()

    def progress(steps: int, metrics: dict[str, Any]) -> None:
        row = {
            "steps": int(steps),
            "return": float(metrics["eval/episode_reward"]),
            "std": float(metrics["eval/episode_reward_std"]),
            "steps/s": float(metrics.get("training/sps", 0.0)),
            "seconds_in_train": time.monotonic() - began,
        }
        print(json.dumps(row), flush=True)

    options = {"backend": arguments.backend} if arguments.backend else {}
    is_ppo = arguments.task in PPO and not arguments.sac
    settings = _PPO | PPO[arguments.task] if is_ppo else SETTINGS_OF_SAC[arguments.task]
    if arguments.steps:
        settings = settings | {"num_timesteps": arguments.steps}
    train = functools.partial(
        ppo.train if is_ppo else sac.train,
        environment=envs.get_environment(arguments.task, **options),
        episode_length=1000,
        seed=arguments.seed,
        num_evals=arguments.evals,
        progress_fn=progress,
    )
    train(**settings)


if __name__ == "__main__":
    main()
