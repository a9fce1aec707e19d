"""Named configurations of SAC, TD3 and DQN, and of learning from episode returns."""

from typing import Any

from jaxrl.config import TrainConfig, overrides
from jaxrl.config.presets.builder import preset, under

_WIDE = under("network", hidden=(256, 256), critic_hidden=(256, 256), activation="relu")
# Physics that is slow however few there are: more of them, and more learning in between.
_SLOW = {"num_envs": 512} | under("offpolicy", train_batches=128, buffer_size=1_200_000)
_STEPS = {
    "ant": 3e6,
    "halfcheetah": 3e6,
    "hopper": 3e6,
    "walker2d": 3e6,
    "humanoid": 5e6,
    "reacher": 1e6,
    "pusher": 3e6,
    "inverted_pendulum": 3e5,
    "inverted_double_pendulum": 1e6,
}
_TASKS: dict[str, dict[str, Any]] = {
    "ant": {"backend": "spring"},
    "halfcheetah": {"backend": "spring"},
    "hopper": {"backend": "spring", "offpolicy.gamma": 0.997},
    "walker2d": {"backend": "positional"},
    "humanoid": {"backend": "mjx"},
    "reacher": {"backend": "mjx", "offpolicy.gamma": 0.95, **_SLOW},
    "pusher": {"backend": "generalized", "offpolicy.gamma": 0.95},
    "inverted_pendulum": {"backend": "mjx"},
    "inverted_double_pendulum": {"backend": "mjx"},
}
_BATCHES = under("offpolicy", train_batches=64, batch_size=256, warmup=8192)
# Returns are learnt from whole episodes: few environments end their first ones early, and few
# gradient steps leave time for many.
_RRD: dict[str, Any] = {
    "num_envs": 128,
    "task.episodic_reward": True,
    "offpolicy.reward": "rrd",
    "offpolicy.train_batches": 8,
    "rrd.batch_size": 2048,  # eight episodes: one for each of up to eight devices
    "rrd.sample_size": 256,
}
_RRD_TASKS: dict[str, dict[str, Any]] = {
    "ant": {},
    "halfcheetah": {},
    "hopper": {},
    "reacher": _SLOW,
    "walker2d": {},
}
# Upright walkers gain little for long, unless values travel back fast: target networks that follow
# twenty times as closely learn within 1 M steps, and distributions over values bear it.
_C51 = under(
    "offpolicy",
    critic="c51",
    v_min=-10.0,
    v_max=150.0,
    reward_scale=0.1,
    pessimism="mean",
    polyak=0.95,
    batch_size=1024,
    train_batches=16,
    gamma=0.997,
    alpha_lr=1e-3,
)
_OF_ALGORITHM: dict[str, dict[str, dict[str, Any]]] = {
    # Hopping is harder: with small batches it is forgotten as fast as it is learnt.
    "sac": {
        "hopper": _C51 | {"num_envs": 512, "offpolicy.batch_size": 4096},
        "walker2d": _C51,
    },
    "td3": {env: {"offpolicy.target_update_interval": 2} for env in _TASKS},
}


def _brax(algo: str, env: str, *changes: dict[str, Any]) -> TrainConfig:
    special = _OF_ALGORITHM[algo].get(env, {})
    common = {"algo": algo, "num_envs": 256} | _WIDE | _BATCHES
    return preset(env, _STEPS[env], common, _TASKS[env], special, *changes)


PRESETS: dict[str, TrainConfig] = {
    f"{algo}-{env}": _brax(algo, env) for algo in ("sac", "td3") for env in _TASKS
}
PRESETS |= {f"rrd-{env}": _brax("sac", env, _RRD, special) for env, special in _RRD_TASKS.items()}
_SMALL = under("network", hidden=(64, 64), critic_hidden=(64, 64), activation="relu")
# Two cores, a minute: a pendulum whose reward comes only at the end of each episode.
PRESETS["rrd-quick"] = preset(
    "pendulum",
    3e4,
    {"algo": "sac", "num_envs": 16, "epochs": 6, "cycles": 4, "eval.num_envs": 32},
    {"task.episodic_reward": True},
    _SMALL,
    under("offpolicy", reward="rrd", train_batches=16, batch_size=128),
    under("rrd", batch_size=512),
    under("offpolicy", buffer_size=100_000, warmup=1000, gamma=0.97),
    under("offpolicy", pi_lr=1e-3, q_lr=1e-3, alpha_lr=1e-3, r_lr=1e-3),
)
PRESETS["dqn-cartpole"] = preset(
    "cartpole",
    1e5,
    {"algo": "dqn", "num_envs": 16, "epochs": 10, "cycles": 2, "eval.num_envs": 32},
    _SMALL,
    under("offpolicy", train_batches=4, batch_size=128, buffer_size=50_000, warmup=1000),
    under("offpolicy", gamma=0.99, q_lr=5e-4, polyak=0.98),
    {"offpolicy.normalize_obs": False},  # with it, the pole stays up half as long
)
PRESETS["dqn-catch"] = preset(
    "catch",
    2e4,
    {"algo": "dqn", "num_envs": 16, "epochs": 5, "cycles": 2, "eval.num_envs": 32},
    _SMALL,
    under("offpolicy", train_batches=4, batch_size=64, buffer_size=20_000, warmup=500),
    under("offpolicy", q_lr=5e-4, polyak=0.98),
)
# Recorded episodes: 100,000 gradient steps. Name them by --data.path, and by --env an environment
# to evaluate in.
_DATA: dict[str, Any] = (
    {"epochs": 10, "cycles": 5, "iterations": 20, "eval.num_envs": 64}
    | _WIDE
    | under("offpolicy", train_batches=100, batch_size=256, warmup=0)
)
_OFFLINE = overrides.changed(TrainConfig(env="offline", num_envs=1), _DATA)
PRESETS["bc"] = overrides.changed(_OFFLINE, {"algo": "bc"})
PRESETS["td3-bc"] = overrides.changed(_OFFLINE, {"algo": "td3", "offpolicy.bc_alpha": 2.5})
PRESETS["cql"] = overrides.changed(_OFFLINE, {"algo": "sac", "offpolicy.cql_alpha": 5.0})
PRESETS["iql"] = overrides.changed(_OFFLINE, {"algo": "iql"})
_REWARD_ONLY = {"algo": "sac"} | {"offpolicy.reward": "rrd", "rrd.reward_only": True}
PRESETS["rrd-offline"] = overrides.changed(
    _OFFLINE,
    _REWARD_ONLY
    | {"eval.num_envs": 0}
    | under("offpolicy", train_batches=50, batch_size=32)
    # Without bias correction rewards are evened out, as acting wants them.
    | under("rrd", batch_size=1024, sample_size=64, bias_correction=True),
)
# Images of LIBERO's size: batches of 32 steps, and chunks of 1,000 steps (94 MiB of 128 × 128
# pixels before and after each step).
PRESETS["rrd-offline-images"] = overrides.changed(
    PRESETS["rrd-offline"],
    {"offpolicy.buffer_size": 1000} | under("rrd", batch_size=32, sample_size=32),
)
