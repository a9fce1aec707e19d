"""Named configurations of PQN: `--algo pqn` after the name of another preset chooses them."""

from jaxrl.config import TrainConfig
from jaxrl.config.presets.builder import preset, under

_SMALL = under("network", hidden=(64, 64))

# Both take less than a minute on two cores.
PRESETS: dict[str, TrainConfig] = {
    "pqn-cartpole": preset(
        "cartpole",
        2.5e5,
        {"algo": "pqn", "num_envs": 32, "epochs": 10, "cycles": 2, "eval.num_envs": 32},
        _SMALL,
        under("pqn", rollout_length=64, update_epochs=4, learning_rate=1e-3),
        under("pqn", lam=0.95, reward_scale=0.1, normalize_obs=False),
    ),
    "pqn-catch": preset(
        "catch",
        5e4,
        {"algo": "pqn", "num_envs": 32, "epochs": 5, "cycles": 2, "eval.num_envs": 32},
        _SMALL,
        under("pqn", learning_rate=1e-3),
    ),
}
