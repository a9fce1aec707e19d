"""Sensitivity of PPO to its settings on CartPole; a few minutes on two cores."""

from jaxrl.studies import Between, Study, smoke_configs

STUDY = Study(
    preset="cartpole",
    variants={
        "lambda 0": {"ppo.lam": 0.0},
        "lambda 1": {"ppo.lam": 1.0},
        "clip 0.02": {"ppo.clip": 0.02},
        "gamma 0.9": {"ppo.gamma": 0.9},
        "a tenth of the rate": {"ppo.learning_rate": 2e-4},
        "observations as they are": {"ppo.normalize_obs": False},
        "advantages as they are": {"ppo.normalize_advantage": "none"},
    },
    seeds=5,
    search={
        "ppo.learning_rate": Between(1e-4, 1e-2, log=True),
        "ppo.lam": Between(0.8, 1.0),
        "ppo.clip": Between(0.05, 0.4),
        "ppo.entropy_coef": Between(1e-4, 3e-2, log=True),
        "ppo.update_epochs": (2, 4, 8),
    },
    smoke=smoke_configs.PPO,
)
