"""How an algorithm is composed from settings; each file has its own, for the registry."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from jaxrl.config import NetworkConfig, TrainConfig
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import EnvSpec

AlgorithmT = TypeVar("AlgorithmT")


class Definition(NamedTuple, Generic[AlgorithmT]):
    """How to compose an algorithm, and the settings of its networks."""

    make: Callable[[TrainConfig, EnvSpec, ActorCritic], AlgorithmT]
    network: Callable[[TrainConfig], NetworkConfig] = lambda config: config.network
