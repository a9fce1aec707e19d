"""How many minibatches, for how large a rollout: on Brax's ant, with equal numbers of steps.

More minibatches are more gradient steps from the same experience, each on less of it; fewer
environments are smaller rollouts, and more of them.
"""

from experiments import smoke_configs
from experiments.study import Study

_STEPS = 15_204_352  # of 8,192 environments, 8 steps each: 8 × 29 iterations


def _variant(envs: int, minibatches: int) -> dict[str, int]:
    iterations = _STEPS // (8 * 8 * envs)
    return {"num_envs": envs, "iterations": iterations, "ppo.num_minibatches": minibatches}


STUDY = Study(
    preset="ant",
    variants={
        f"{envs} environments, {number} minibatches": _variant(envs, number)
        for envs in (2048, 8192)
        for number in (16, 32, 64)
    },
    seeds=5,
    settings={"epochs": 8, "cycles": 1, "eval.num_envs": 64},
    smoke=smoke_configs.PPO | smoke_configs.NO_PHYSICS,
)
