"""Named configurations of SAC, TD3 and DQN, and of learning from whole returns."""

from typing import Any

from jaxrl.config import EvalConfig, NetworkConfig, OffPolicyConfig, TaskConfig, TrainConfig
from jaxrl.config.presets.builder import preset

_WIDE = NetworkConfig(hidden=(256, 256), critic_hidden=(256, 256), activation="relu")
# Physics that is slow however few there are: more of them, and more learning in between.
_SLOW: dict[str, Any] = {"num_envs": 512, "train_batches": 128, "buffer_size": 1_200_000}
_TASKS: dict[str, dict[str, Any]] = {
    "ant": {"backend": "spring", "steps": 3e6},
    "halfcheetah": {"backend": "spring", "steps": 3e6},
    "hopper": {"backend": "spring", "steps": 3e6, "gamma": 0.997},
    "walker2d": {"backend": "positional", "steps": 3e6},
    "humanoid": {"backend": "mjx", "steps": 5e6},
    "reacher": {"backend": "mjx", "steps": 1e6, "gamma": 0.95, **_SLOW},
    "pusher": {"backend": "generalized", "steps": 3e6, "gamma": 0.95},
    "inverted_pendulum": {"backend": "mjx", "steps": 3e5},
    "inverted_double_pendulum": {"backend": "mjx", "steps": 1e6},
}
_BATCHES: dict[str, Any] = {
    "train_batches": 64,
    "batch_size": 256,
    "warmup": 8192,
}
# Returns are learnt from whole episodes: few environments end their first ones early, and few
# gradient steps leave time for many.
_DECOMPOSING: dict[str, Any] = {
    "num_envs": 128,
    "train_batches": 8,
    "rrd_batch_size": 2048,  # eight pieces: one for each of up to eight devices
    "rrd_sample_size": 256,
}
_DECOMPOSED: dict[str, dict[str, Any]] = {
    "ant": {},
    "halfcheetah": {},
    "hopper": {},
    "reacher": _SLOW,
    "walker2d": {},
}
# Upright walkers gain little for long, unless values travel back fast: target networks that follow
# twenty times as closely learn within 1 M steps, and distributions over values bear it.
_DISTRIBUTIONS: dict[str, Any] = {
    "critic": "c51",
    "v_min": -10.0,
    "v_max": 150.0,
    "reward_scale": 0.1,
    "pessimism": "mean",
    "polyak": 0.95,
    "batch_size": 1024,
    "train_batches": 16,
    "gamma": 0.997,
    "alpha_lr": 1e-3,
}
_OF_ALGORITHM: dict[str, dict[str, dict[str, Any]]] = {
    # Hopping is harder: with small batches it is forgotten as fast as it is learnt.
    "sac": {
        "hopper": _DISTRIBUTIONS | {"num_envs": 512, "batch_size": 4096},
        "walker2d": _DISTRIBUTIONS,
    },
    "td3": {env: {"target_update_interval": 2} for env in _TASKS},
}


def _brax(algo: str, env: str, name: str, **more: Any) -> TrainConfig:
    special = _OF_ALGORITHM[algo].get(env, {})
    settings = {"num_envs": 256, "network": _WIDE, **_BATCHES, **_TASKS[env], **special, **more}
    return preset(env, name=name, algo=algo, **settings)


PRESETS: dict[str, TrainConfig] = {
    f"{algo}-{env}": _brax(algo, env, f"{algo}-{env}") for algo in ("sac", "td3") for env in _TASKS
}
PRESETS |= {
    f"rrd-{env}": _brax(
        "sac",
        env,
        f"rrd-{env}",
        task=TaskConfig(episodic_reward=True),
        reward="rrd",
        **_DECOMPOSING | special,
    )
    for env, special in _DECOMPOSED.items()
}
_SMALL = NetworkConfig(hidden=(64, 64), critic_hidden=(64, 64), activation="relu")
# Two cores, a minute: a pendulum that is told how it did only at the end of each episode.
PRESETS["rrd-quick"] = preset(
    "pendulum",
    name="rrd-quick",
    algo="sac",
    steps=3e4,
    num_envs=16,
    epochs=6,
    cycles=4,
    network=_SMALL,
    eval_envs=32,
    task=TaskConfig(episodic_reward=True),
    reward="rrd",
    rrd_batch_size=512,
    train_batches=16,
    batch_size=128,
    buffer_size=100_000,
    warmup=1000,
    gamma=0.97,
    pi_lr=1e-3,
    q_lr=1e-3,
    alpha_lr=1e-3,
    r_lr=1e-3,
)
PRESETS["dqn-cartpole"] = preset(
    "cartpole",
    name="dqn-cartpole",
    algo="dqn",
    steps=1e5,
    num_envs=16,
    epochs=10,
    cycles=2,
    network=_SMALL,
    eval_envs=32,
    train_batches=4,
    batch_size=128,
    buffer_size=50_000,
    warmup=1000,
    gamma=0.99,
    q_lr=5e-4,
    polyak=0.98,
    normalize_obs=False,  # with it, the pole stays up half as long
)
PRESETS["dqn-catch"] = preset(
    "catch",
    name="dqn-catch",
    algo="dqn",
    steps=2e4,
    num_envs=16,
    epochs=5,
    cycles=2,
    network=_SMALL,
    eval_envs=32,
    train_batches=4,
    batch_size=64,
    buffer_size=20_000,
    warmup=500,
    q_lr=5e-4,
    polyak=0.98,
)
PRESETS["rrd-offline"] = TrainConfig(
    env="offline",
    algo="sac",
    preset="rrd-offline",
    num_envs=1,
    devices=1,
    epochs=10,
    cycles=5,
    iterations=20,
    network=_WIDE,
    eval=EvalConfig(num_envs=0),
    offpolicy=OffPolicyConfig(
        train_batches=50,
        batch_size=32,
        reward="rrd",
        rrd_batch_size=1024,
        rrd_sample_size=64,
        rrd_bias_correction=True,  # without it rewards are evened out, as acting wants them
        rrd_reward_only=True,
        warmup=0,
    ),
)
