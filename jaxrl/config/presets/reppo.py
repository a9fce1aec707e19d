"""Named configurations of REPPO: `--algo reppo` after the name of another preset chooses them."""

from typing import Any

from jaxrl.config import TrainConfig, env_names, overrides
from jaxrl.config.presets.builder import preset, under

# Sizes of its authors: 131,072 steps per iteration, in minibatches of 2,048. A standard deviation
# is at least 0.1: the actor follows the critic, which must see what other actions are worth.
_NETWORK = under(
    "network", hidden=(512, 512), critic_hidden=(512, 512), norm="rms", init_std=1.0, min_std=0.1
)
_COMMON = {"num_envs": 1024, "epochs": 12, "cycles": 4} | _NETWORK
# Rewards are at most 1: returns of at most 100, and room for the entropy's.
_DM_CONTROL = (_COMMON, under("reppo", gamma=0.99, v_min=0.0, v_max=150.0))
# The critics see privileged observations where a task has them.
_LEGGED = (
    _COMMON,
    {"network.critic_hidden": (1024, 1024)},
    under("reppo", gamma=0.97, v_min=-10.0, v_max=10.0, num_minibatches=16),
)
_BRAX = (_COMMON, under("reppo", gamma=0.99, reward_scale=0.1, v_min=0.0, v_max=150.0))


def _preset(env: str, steps: float, *changes: dict[str, Any]) -> TrainConfig:
    return preset(env, steps, {"algo": "reppo"}, *changes)


PRESETS: dict[str, TrainConfig] = {
    f"reppo-playground:{name}": _preset(f"playground:{name}", steps, *settings)
    for names, steps, settings in (
        (env_names.DM_CONTROL, 50e6, _DM_CONTROL),
        (env_names.LOCOMOTION, 50e6, _LEGGED),
    )
    for name in names
}
PRESETS["reppo-ant"] = _preset("ant", 50e6, {"backend": "spring"}, *_BRAX)
PRESETS["reppo-humanoid"] = _preset(
    "humanoid", 50e6, {"backend": "mjx"}, *_BRAX, {"reppo.v_max": 200.0}
)
# Two cores, a minute. Scaled rewards are between −1.63 and 0.
PRESETS["reppo-pendulum"] = _preset(
    "pendulum",
    3e5,
    {"num_envs": 64, "epochs": 5, "cycles": 2, "eval.num_envs": 64},
    _NETWORK,
    under("network", hidden=(64, 64), critic_hidden=(64, 64)),
    under("reppo", rollout_length=64, update_epochs=4, num_minibatches=16, learning_rate=1e-3),
    under("reppo", gamma=0.95, reward_scale=0.1, v_min=-30.0, v_max=5.0),
)
# The starting point for an environment of one's own.
PRESETS["reppo-custom"] = overrides.changed(TrainConfig(algo="reppo", num_envs=1024), _NETWORK)
