"""What matters in REPPO, on Playground's WalkerRun: each part of it left out."""

from jaxrl.studies import Between, Study, smoke_configs

STUDY = Study(
    preset="reppo-playground:WalkerRun",
    variants={
        "no auxiliary loss": {"reppo.aux_coef": 0.0},
        "no KL constraint": {"reppo.kl_bound": 1e6},
        "no entropy": {"reppo.alpha_init": 1e-8, "reppo.target_entropy": -100.0},
        "lambda 0": {"reppo.lam": 0.0},
        "lambda 1": {"reppo.lam": 1.0},
        # Static settings: each of these variants is compiled separately.
        "squared error": {"reppo.critic_loss": "mse"},
        "no RMS normalisation": {"network.norm": "none"},
        "observations as they are": {"reppo.normalize_obs": False},
    },
    seeds=3,
    search={
        "reppo.learning_rate": Between(1e-4, 1e-3, log=True),
        "reppo.kl_bound": Between(0.02, 0.5, log=True),
        "reppo.target_entropy": Between(-1.0, 0.0),
        "reppo.gamma": (0.97, 0.99, 0.995),
    },
    settings={"epochs": 4, "eval.num_envs": 64},  # 17 M steps
    smoke=smoke_configs.REPPO | smoke_configs.NO_PHYSICS,
)
