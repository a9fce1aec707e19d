"""Motion tracking: with AMP, with an LSTM, and without sampling failed clips more often.

Without `--set motion.clips FOLDER` there is only one generated clip, and nothing to resample.
"""

from jaxrl.studies import Study, smoke_configs

_AMP = {"amp.weight": 0.5, "amp.gradient_penalty": 20.0}
_LSTM = {"network.rnn": "lstm", "network.rnn_size": 256}

STUDY = Study(
    preset="imitate",
    variants={
        "all clips alike": {"motion.resample_interval": 0},
        "with AMP": _AMP,
        "with LSTM": _LSTM,
        "with AMP and LSTM": _AMP | _LSTM,
    },
    seeds=3,
    settings={"num_envs": 2048, "epochs": 8, "cycles": 1, "iterations": 23},  # 6 M steps
    metric="eval/mpjpe_all",  # millimetres
    lower_is_better=True,
    smoke=smoke_configs.PPO
    | smoke_configs.NO_PHYSICS
    | {"amp.weight": 0.0, "motion.resample_interval": 1, "network.rnn_size": 8},
)
