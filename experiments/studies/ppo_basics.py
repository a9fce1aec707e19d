"""Sensitivity of PPO to its settings, and to common mistakes, on Brax's ant."""

from jaxrl.studies import Between, Study, smoke_configs

STUDY = Study(
    preset="ant",
    variants={
        "lambda 0": {"ppo.lam": 0.0},
        "lambda 0.8": {"ppo.lam": 0.8},
        "lambda 1": {"ppo.lam": 1.0},
        "clip 0.05": {"ppo.clip": 0.05},
        "clip 0.4": {"ppo.clip": 0.4},
        "gamma 0.99": {"ppo.gamma": 0.99},
        "no entropy bonus": {"ppo.entropy_coef": 0.0},
        "rewards as they are": {"ppo.reward_scale": 1.0},
        "time limits are endings": {"ppo.bootstrap_truncated": False},
        # Static settings: each of these variants is compiled separately.
        "observations as they are": {"ppo.normalize_obs": False},
        "advantages as they are": {"ppo.normalize_advantage": "none"},
        "always the same starts": {"task.fresh_resets": False},
    },
    seeds=5,
    search={
        "ppo.desired_kl": Between(3e-3, 1e-1, log=True),
        "ppo.lam": Between(0.8, 1.0),
        "ppo.clip": Between(0.05, 0.4),
        "ppo.entropy_coef": Between(1e-4, 3e-2, log=True),
        "ppo.update_epochs": (2, 4, 8),
    },
    settings={"epochs": 6, "cycles": 1, "eval.num_envs": 64},  # 11 M steps
    smoke=smoke_configs.PPO
    | smoke_configs.NO_PHYSICS
    | {"ppo.normalize_advantage": "minibatch", "task.fresh_resets": True},
)
