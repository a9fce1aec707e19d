"""Learning algorithms: PPO, REPPO, SAC, TD3, DQN, IQL, BC, AMP, rewards; each one pure train_step.

They compose rollouts, the mathematics of `jaxrl.learning`, and `jaxrl.networks`. An algorithm of
your own is a function (config, env, networks, num_shards) -> Algorithm: --algo module:make.
"""

from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm, TwinCritic
from jaxrl.algorithms.on_policy.base import OnPolicyAlgorithm
from jaxrl.algorithms.policy import PolicyParams, make_policy
from jaxrl.algorithms.ppo.algorithm import make as make_ppo
from jaxrl.algorithms.registry import make, make_off_policy, make_on_policy
from jaxrl.types import Algorithm

__all__ = [
    "Algorithm",
    "OffPolicyAlgorithm",
    "OnPolicyAlgorithm",
    "PolicyParams",
    "TwinCritic",
    "make",
    "make_off_policy",
    "make_on_policy",
    "make_policy",
    "make_ppo",
]
