"""Following motion capture: a discriminator of style, memory, and drawing failed clips more often.

Without `--set motion.clips FOLDER` there is one generated clip: none to draw more often.
"""

from experiments import smoke_configs
from experiments.study import Study

_AMP = {"amp.weight": 0.5, "amp.gradient_penalty": 20.0}
_MEMORY = {"network.rnn": "lstm", "network.rnn_size": 256}

STUDY = Study(
    preset="imitate",
    variants={
        "all clips alike": {"motion.resample_interval": 0},
        "with AMP": _AMP,
        "with LSTM": _MEMORY,
        "with AMP and LSTM": _AMP | _MEMORY,
    },
    seeds=3,
    settings={"num_envs": 2048, "epochs": 8, "cycles": 1, "iterations": 23},  # 6 M steps
    metric="eval/mpjpe_all",  # millimetres
    lower_is_better=True,
    smoke=smoke_configs.PPO
    | smoke_configs.NO_PHYSICS
    | {"amp.weight": 0.0, "motion.resample_interval": 1, "network.rnn_size": 8},
)
