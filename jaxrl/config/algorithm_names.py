"""The algorithms, and what settings must know of each: plain values, no JAX.

Their code is registered under the same names in `jaxrl.algorithms.registry`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple


class AlgorithmInfo(NamedTuple):
    """What an algorithm is, and which shared settings it reads."""

    section: str = "offpolicy"
    """Group that holds its settings; an algorithm with a group of its own is on-policy."""
    actions: Literal["continuous", "discrete", "any"] = "continuous"
    data_only: bool = False
    """It learns from recorded episodes only."""
    critics: Literal["", "value", "q", "twin q"] = ""
    """Networks beside the actor; dqn's actor is its Q network."""
    chooses_distribution: bool = False
    """Of actions; the others take --network.distribution."""
    learns_std: bool = False
    """The standard deviation of continuous actions."""
    recurrent: bool = False
    """It can train recurrent layers."""
    sde: bool = False
    """It can explore by state-dependent noise."""


ALGORITHMS = {
    "ppo": AlgorithmInfo("ppo", "any", critics="value", learns_std=True, recurrent=True, sde=True),
    "reppo": AlgorithmInfo("reppo", critics="q", learns_std=True),
    "pqn": AlgorithmInfo("pqn", actions="discrete", chooses_distribution=True),
    "sac": AlgorithmInfo(critics="twin q", learns_std=True, sde=True),
    "td3": AlgorithmInfo(critics="twin q", chooses_distribution=True),
    "dqn": AlgorithmInfo(actions="discrete", chooses_distribution=True),
    "iql": AlgorithmInfo(
        actions="any",
        data_only=True,
        critics="twin q",
        chooses_distribution=True,
        learns_std=True,
    ),
    "bc": AlgorithmInfo(actions="any", data_only=True, chooses_distribution=True),
}


def names(holds: Callable[[AlgorithmInfo], bool]) -> tuple[str, ...]:
    """Return the algorithms of which something holds."""
    return tuple(name for name, info in ALGORITHMS.items() if holds(info))


def section(algo: str) -> str:
    """Return the group of an algorithm's settings: `offpolicy` for one of the user's own."""
    return ALGORITHMS.get(algo, AlgorithmInfo()).section


ON_POLICY = names(lambda info: info.section != "offpolicy")
OFF_POLICY = names(lambda info: info.section == "offpolicy")
