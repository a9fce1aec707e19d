"""Number of minibatches and size of rollouts on Brax's ant, at equal numbers of steps.

More minibatches are more, smaller gradient steps on the same experience; fewer environments are
more, smaller rollouts.
"""

from jaxrl.studies import Study, smoke_configs

_STEPS = 15_204_352  # 8,192 environments × 8 steps × 8 epochs × 29 iterations


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
