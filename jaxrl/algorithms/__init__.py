"""Learning algorithms, each one pure train_step: PPO, REPPO, PQN, SAC, TD3, DQN, IQL, BC; AMP.

They compose rollouts, the mathematics of `jaxrl.learning`, and `jaxrl.networks`. An algorithm of
your own is a function (config, env, networks, num_shards) -> Algorithm: --algo module:make.
"""

from jaxrl.algorithms.off_policy.base import OffPolicyAlgorithm, TwinCritic
from jaxrl.algorithms.policy import PolicyParams, make_policy
from jaxrl.algorithms.ppo.algorithm import make as make_ppo
from jaxrl.algorithms.registry import make, make_off_policy
from jaxrl.types import Algorithm

__all__ = [
    "Algorithm",
    "OffPolicyAlgorithm",
    "PolicyParams",
    "TwinCritic",
    "make",
    "make_off_policy",
    "make_policy",
    "make_ppo",
]
