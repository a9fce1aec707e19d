"""Named configurations of PPO."""

from jaxrl.config import TrainConfig, overrides
from jaxrl.config.presets.builder import preset, under

_ADAPTIVE = under("ppo", schedule="adaptive_kl", learning_rate=1e-3, desired_kl=0.01)
_FAST = _ADAPTIVE | {"ppo.desired_kl": 0.02}
_BALANCING = _FAST | under("ppo", gamma=0.997, reward_scale=0.1, entropy_coef=5e-3)
_STEADY = under(
    "ppo",
    schedule="adaptive_kl",
    learning_rate=3e-4,
    max_learning_rate=3e-4,
    desired_kl=0.005,
)
# A spread that shrinks with the error shrinks the steps KL allows too, until nothing moves.
_WIDE_SPREAD = under(
    "network",
    hidden=(128, 128),
    critic_hidden=(256, 256),
    state_dependent_std=False,
    min_std=0.1,
)
_SMALL = under("network", hidden=(32, 32), critic_hidden=(64, 64))

PRESETS: dict[str, TrainConfig] = {
    "ant": preset(
        "ant",
        60e6,
        {"backend": "spring", "num_envs": 8192, "epochs": 8, "cycles": 4},
        {"network.critic_hidden": (64, 64, 64)},
        _FAST,
        under("ppo", num_minibatches=4, gamma=0.97, reward_scale=0.1, entropy_coef=5e-3),
    ),
    "halfcheetah": preset(
        "halfcheetah",
        50e6,
        {"backend": "spring"},
        _FAST,
        under("ppo", gamma=0.99, reward_scale=0.1),
    ),
    # A falling body: what comes after the next second must count, or it learns to leap and fall.
    "hopper": preset("hopper", 50e6, {"backend": "spring"}, _BALANCING),
    "walker2d": preset("walker2d", 60e6, {"backend": "positional"}, _BALANCING),
    "swimmer": preset("swimmer", 30e6, {"backend": "generalized"}, _ADAPTIVE, {"ppo.gamma": 0.995}),
    "humanoid": preset(
        "humanoid",
        50e6,
        {"backend": "mjx", "epochs": 6, "cycles": 8},
        _ADAPTIVE,
        under("ppo", num_minibatches=4, gamma=0.97, reward_scale=0.1),
        {"ppo.entropy_coef": 5e-3},  # with 1e-3 many seeds stay with the first gait they find
    ),
    "humanoidstandup": preset(
        "humanoidstandup",
        50e6,
        {"backend": "mjx"},
        _ADAPTIVE,
        under("ppo", gamma=0.97, reward_scale=0.01),
    ),
    "reacher": preset(
        "reacher",
        30e6,
        {"backend": "mjx", "task.action_repeat": 4},
        _WIDE_SPREAD,
        {"network.min_std": 0.03},  # 0.1 keeps it from coming closer
        _FAST,
        {"ppo.gamma": 0.95},
    ),
    "pusher": preset(
        "pusher", 50e6, {"backend": "generalized"}, _WIDE_SPREAD, _FAST, {"ppo.gamma": 0.95}
    ),
    # Once the pole stands, advantages are noise: small steps keep noise from tipping it over.
    "inverted_pendulum": preset(
        "inverted_pendulum",
        2e6,
        {"backend": "mjx", "num_envs": 2048},
        _STEADY,
        {"ppo.gamma": 0.97},
    ),
    "inverted_double_pendulum": preset(
        "inverted_double_pendulum",
        10e6,
        {"backend": "mjx", "num_envs": 2048},
        _ADAPTIVE,
        under("ppo", gamma=0.99, reward_scale=0.1, max_learning_rate=1e-3),
    ),
    "fast": preset("fast", 5e4, {"num_envs": 64, "epochs": 2, "eval.num_envs": 16}, _SMALL),
    "cartpole": preset(
        "cartpole",
        5e5,
        {"num_envs": 256, "epochs": 5},
        _SMALL,
        under("ppo", gamma=0.98, rollout_length=32, learning_rate=2e-3, schedule="linear"),
    ),
    "pendulum": preset(
        "pendulum",
        1e6,
        {"num_envs": 256, "epochs": 8},
        under("network", hidden=(64, 64), critic_hidden=(64, 64)),
        _ADAPTIVE,
        under("ppo", gamma=0.95, rollout_length=32, reward_scale=0.1),
    ),
}
# The batch of Metta's trainer: 524,288 steps as 8,192 rows (2,048 × 4 agents) of 64.
_LSTM = under("network", hidden=(128,), critic_hidden=(128,), rnn="lstm", rnn_size=128)
_ARENA = _ADAPTIVE | {
    "eval.deterministic": False,
    "ppo.rollout_length": 64,
    "ppo.gamma": 0.99,
    "ppo.entropy_coef": 5e-3,
    "ppo.max_learning_rate": 5e-3,  # with larger ones the recurrent layer saturates
}
PRESETS["arena"] = preset(
    "arena",
    60e6,
    {"num_envs": 2048, "epochs": 10, "cycles": 4},
    _LSTM,
    _ARENA,
    under("ppo", update_epochs=1, num_minibatches=32),
)
PRESETS["arena-small"] = preset(
    "arena",
    1e6,
    {"num_envs": 64, "epochs": 5, "eval.num_envs": 32},
    _LSTM,
    under("network", hidden=(64,), critic_hidden=(64,), rnn_size=64),
    _ARENA,
    under("ppo", update_epochs=2, num_minibatches=8),
)
PRESETS["memory"] = preset(
    "recall",
    1e6,
    {"num_envs": 256, "epochs": 4, "cycles": 4},
    under("network", hidden=(32,), critic_hidden=(32,), rnn="lstm", rnn_size=32),
    under("ppo", gamma=0.9, rollout_length=64, bptt_horizon=32, num_minibatches=8),
    under("ppo", update_epochs=2, learning_rate=3e-3, entropy_coef=1e-2),
)
PRESETS["quickstart"] = preset(
    "inverted_pendulum",
    6e5,
    {"backend": "generalized", "num_envs": 256, "epochs": 9, "cycles": 1, "eval.num_envs": 64},
    _SMALL,
    under("ppo", gamma=0.97, learning_rate=1e-3, schedule="linear"),
)
PRESETS["gym-cartpole"] = preset(
    "gym:CartPole-v1",
    2e5,
    {"num_envs": 32, "epochs": 5, "eval.num_envs": 16},
    _SMALL,
    under("ppo", gamma=0.98, rollout_length=64, num_minibatches=4, update_epochs=8),
    under("ppo", learning_rate=2e-3, schedule="linear"),
)
# The starting point for an environment of one's own. Where the best action is a single one, the
# standard deviation falls to its lower bound; at 0.001 KL explodes, and the learning rate falls to
# its minimum.
PRESETS["custom"] = overrides.changed(
    TrainConfig(num_envs=1024), _ADAPTIVE | {"network.min_std": 0.03}
)
