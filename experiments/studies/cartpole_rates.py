"""Learning rates over four decades: most of them learn nothing on their own."""

from jaxrl.studies import Between, Study

STUDY = Study(
    preset="cartpole",
    variants={
        "a thousandth of the rate": {"ppo.learning_rate": 2e-6},
        "a hundredth of the rate": {"ppo.learning_rate": 2e-5},
        "a tenth of the rate": {"ppo.learning_rate": 2e-4},
        "ten times the rate": {"ppo.learning_rate": 2e-2},
    },
    seeds=5,
    search={"ppo.learning_rate": Between(1e-6, 1e-2, log=True), "ppo.lam": Between(0.8, 1.0)},
)
