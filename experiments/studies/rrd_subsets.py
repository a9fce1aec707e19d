"""Return decomposition: number of sampled steps per episode, with and without bias correction.

The ant receives its reward as one sum at the end of each episode. Two variants are the lower and
the upper reference: learning from the sums, and from the reward of every step. There are few
environments, so that episodes end early in a run, and few gradient steps per environment step,
since the reward model learns from whole episodes.
"""

from jaxrl.studies import Study, smoke_configs

_SIZE, _CORRECTED = "rrd.sample_size", "rrd.bias_correction"

STUDY = Study(
    preset="rrd-ant",
    variants={
        "8 steps": {_SIZE: 8},
        "256 steps": {_SIZE: 256},
        "8 steps, corrected": {_SIZE: 8, _CORRECTED: True},
        "64 steps, corrected": {_CORRECTED: True},
        "256 steps, corrected": {_SIZE: 256, _CORRECTED: True},
        "the sums themselves": {"offpolicy.reward": "env"},
        "every step's reward": {"offpolicy.reward": "env", "task.episodic_reward": False},
    },
    seeds=5,
    settings={
        _SIZE: 64,
        "rrd.batch_size": 512,
        _CORRECTED: False,
        "num_envs": 128,
        "offpolicy.train_batches": 8,
        "epochs": 8,
        "cycles": 1,
        "iterations": 1000,  # 1 M steps
        "eval.num_envs": 64,
    },
    smoke=smoke_configs.REPLAY
    | smoke_configs.NO_PHYSICS
    | {"offpolicy.reward": "rrd", "task.episodic_reward": True},
)
