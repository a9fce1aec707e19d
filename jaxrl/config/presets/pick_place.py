"""Named configurations of picking and placing."""

from jaxrl.config import TrainConfig
from jaxrl.config.presets.builder import preset, under

_SMALL = under(
    "network",
    hidden=(64, 64),
    critic_hidden=(128, 128),
    activation="elu",
    distribution="normal",
    state_dependent_std=False,
    init_std=0.6,
)
_LARGE = _SMALL | under("network", hidden=(256, 128, 64), critic_hidden=(256, 256, 128))
_LEARNING = under("ppo", gamma=0.97, schedule="adaptive_kl", learning_rate=1e-3, desired_kl=0.015)

PRESETS: dict[str, TrainConfig] = {
    # Two cores, a few minutes.
    "pick-place-easy": preset(
        "pick_place",
        4e5,
        {"pick.difficulty": "easy", "num_envs": 128, "epochs": 8, "eval.num_envs": 64},
        _SMALL,
        _LEARNING,
        under("ppo", rollout_length=32, update_epochs=6, num_minibatches=4),
    ),
    "pick-place": preset(
        "pick_place",
        14e6,
        {"pick.difficulty": "curriculum", "epochs": 6, "cycles": 6, "eval.num_envs": 1024},
        _LARGE,
        _LEARNING,
        under("ppo", rollout_length=16, update_epochs=4, num_minibatches=8),
    ),
    "pick-place-sac": preset(
        "pick_place",
        2e6,
        {"pick.difficulty": "medium", "algo": "sac", "num_envs": 256, "cycles": 4},
        under("network", hidden=(256, 256), critic_hidden=(256, 256), activation="relu"),
        under("offpolicy", gamma=0.97, train_batches=64, batch_size=256, warmup=8192),
    ),
}
