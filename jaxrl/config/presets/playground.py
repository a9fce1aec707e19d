"""Named configurations of MuJoCo Playground's tasks: one for each suite, and what differs by task.

Steps, discounts and sizes of networks began with those that Playground publishes for brax's PPO.
"""

from typing import Any

from jaxrl.config import TrainConfig, env_names
from jaxrl.config.presets.builder import preset, under

# Where the first gradients are small, KL allows any learning rate, and the critic is lost: hence
# the upper bound. KL would explode where the standard deviation falls to a smaller lower bound.
_ADAPTIVE = under(
    "ppo",
    schedule="adaptive_kl",
    learning_rate=1e-3,
    max_learning_rate=1e-3,
    desired_kl=0.01,
) | {"network.min_std": 0.05}
# Rewards are at most 1. Their scale keeps values below 10: the gradient of larger ones would take
# up the whole norm that gradients are clipped to.
_FAR_SIGHTED = under("ppo", gamma=0.995, reward_scale=0.05)
_DM_CONTROL = (
    {"num_envs": 2048, "epochs": 10, "cycles": 3},
    under("network", hidden=(128, 128, 128), critic_hidden=(256, 256, 256)),
    _ADAPTIVE,
    under("ppo", rollout_length=32, num_minibatches=16, entropy_coef=5e-3),
    under("ppo", gamma=0.99, reward_scale=0.1),
)
# Critics see privileged observations where a task has them.
_LEGGED = (
    {"num_envs": 8192, "epochs": 10, "cycles": 4},
    under("network", hidden=(512, 256, 128), critic_hidden=(512, 256, 128)),
    _ADAPTIVE,
    under("ppo", rollout_length=20, num_minibatches=16, gamma=0.97, entropy_coef=5e-3),
)
_MANIPULATION = (
    {"num_envs": 4096, "epochs": 10, "cycles": 2},
    under("network", hidden=(128, 128, 128), critic_hidden=(256, 256, 256)),
    _ADAPTIVE,
    under("ppo", rollout_length=16, num_minibatches=16, gamma=0.97, entropy_coef=1e-2),
)
_SUITES: tuple[tuple[tuple[str, ...], float, tuple], ...] = (
    (env_names.DM_CONTROL, 60e6, _DM_CONTROL),
    (env_names.LOCOMOTION, 100e6, _LEGGED),
    (env_names.MANIPULATION, 50e6, _MANIPULATION),
)
# Millions of steps where a task needs others than its suite.
_MILLIONS = {
    "AcrobotSwingup": 100,
    "AcrobotSwingupSparse": 100,
    "SwimmerSwimmer6": 100,
    "WalkerRun": 100,
    "BerkeleyHumanoidJoystickFlatTerrain": 150,
    "BerkeleyHumanoidJoystickRoughTerrain": 150,
    "G1JoystickFlatTerrain": 200,
    "G1JoystickRoughTerrain": 200,
    "Go1Getup": 50,
    "Go1JoystickFlatTerrain": 200,
    "Go1JoystickRoughTerrain": 200,
    "T1JoystickFlatTerrain": 200,
    "T1JoystickRoughTerrain": 200,
    "ApolloJoystickFlatTerrain": 200,
    "PandaPickCube": 20,
    "LeapCubeReorient": 200,
}
_CHANGES: dict[str, dict[str, Any]] = {
    "AcrobotSwingup": _FAR_SIGHTED,
    "AcrobotSwingupSparse": _FAR_SIGHTED,
    "BallInCup": {"ppo.gamma": 0.95},
    "FingerSpin": {"ppo.gamma": 0.95},
    "FingerTurnEasy": _FAR_SIGHTED,
    "FingerTurnHard": _FAR_SIGHTED,
    # As the tasks' own configurations say.
    "AlohaSinglePegInsertion": {"task.action_repeat": 2},
    "PandaRobotiqPushCube": {"task.action_repeat": 4},
    "LeapCubeReorient": under("network", hidden=(512, 256, 128), critic_hidden=(512, 256, 128))
    | {"ppo.gamma": 0.99},
}


def _preset(name: str, steps: float, settings: tuple) -> TrainConfig:
    steps = _MILLIONS.get(name, steps / 1e6) * 1e6
    return preset(f"playground:{name}", steps, *settings, _CHANGES.get(name, {}))


PRESETS: dict[str, TrainConfig] = {
    f"playground:{name}": _preset(name, steps, settings)
    for names, steps, settings in _SUITES
    for name in names
}
