"""Networks, built for the observations and actions of an environment, as records of functions.

Algorithms see init and apply, never a Flax module. Networks of your own are a function
(spec, config) -> ActorCritic, named by --network.module module:build.
"""

from jaxrl.networks.actor_critic import ActorCritic, Network, example_obs
from jaxrl.networks.actor_critic import build as build_actor_critic
from jaxrl.networks.embedding_critic import EmbeddingCritic
from jaxrl.networks.embedding_critic import build as build_embedding_critic
from jaxrl.networks.mlp import MLP
from jaxrl.networks.q_network import Critic
from jaxrl.networks.q_network import build as build_critic
from jaxrl.networks.recurrent import RNN
from jaxrl.networks.reward_network import RewardNetwork
from jaxrl.networks.reward_network import build as build_reward_network

__all__ = [
    "MLP",
    "RNN",
    "ActorCritic",
    "Critic",
    "EmbeddingCritic",
    "Network",
    "RewardNetwork",
    "build_actor_critic",
    "build_critic",
    "build_embedding_critic",
    "build_reward_network",
    "example_obs",
]
