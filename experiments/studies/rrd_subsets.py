"""Rewards from returns: how many steps of an episode are drawn, and whether the loss is corrected.

The ant is told what it earned only at the end of each episode. Two variants say what there is to
lose and to win: learning from the sums themselves, and from every step's reward. Few environments,
so that episodes end early in a run; few gradient steps for each of theirs, since it is episodes
that returns are learnt from.
"""

from experiments import smoke_configs
from experiments.study import Study

_SIZE, _CORRECTED = "offpolicy.rrd_sample_size", "offpolicy.rrd_bias_correction"

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
        "offpolicy.rrd_batch_size": 512,
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
