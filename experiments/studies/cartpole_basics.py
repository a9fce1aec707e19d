"""What matters in PPO, on the smallest task: two cores need a few minutes for it."""

from experiments import tiny
from experiments.study import Study

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
    tiny=tiny.PPO | {"env": "cartpole"},
)
