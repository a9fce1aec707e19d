"""The five phases of learning to pick and place, told by how often episodes grasp and succeed.

A phase ends at the first logged cycle that reaches a share of its episodes, and does not come back
when the share falls again:

  initialisation  until 10 % of the episodes end with the cube in the cup, or in success
  discovery       until 5 % succeed
  skill           until 50 % succeed
  optimisation    until 95 % succeed
  convergence     from there on

Even random arms touch the cube now and then: a single grasp would tell nothing. What grasping pays
is paid back by letting go, so its sum over an episode tells whether the cube was held at the end.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TERMS = ("approach", "grasp", "lift", "place", "success")
SUCCESS = "rollout/success_rate"
GRASPED = 0.10
SUCCEEDED = {"discovery": 0.05, "skill": 0.50, "optimisation": 0.95}
RULES = {
    "initialisation": f"until {GRASPED:.0%} of the episodes end with the cube in the cup",
    **{name: f"until {share:.0%} of the episodes succeed" for name, share in SUCCEEDED.items()},
    "convergence": "from there on",
}


class Phase(NamedTuple):
    """A part of a run, in environment steps."""

    name: str
    start: float
    end: float


class Course(NamedTuple):
    """What a run logged of its phases, cycle by cycle."""

    steps: np.ndarray
    succeeded: np.ndarray  # share of the episodes
    terms: dict[str, np.ndarray]  # of the reward, each as a share of the most it ever paid
    phases: list[Phase]


def metric(term: str) -> str:
    """Return the name under which a term of the reward is logged."""
    return f"rollout/ep_reward_{term}"


def course(rows: Sequence[dict[str, float]], grasp_reward: float) -> Course | None:
    """Return the phases of a run from its log; None where it picked nothing.

    Args:
      rows: points of the log.
      grasp_reward: what taking hold of the cube pays.
    """
    needed = (SUCCESS, *map(metric, TERMS))
    rows = [row for row in rows if all(np.isfinite(row.get(name, np.nan)) for name in needed)]
    if not rows:
        return None
    column = {name: np.array([row[name] for row in rows]) for name in ("step", *needed)}
    paid = {term: column[metric(term)] for term in TERMS}
    steps, succeeded = column["step"], column[SUCCESS]
    grasped = paid["grasp"] / grasp_reward if grasp_reward else np.zeros(len(rows))
    shares = {term: values / max(np.abs(values).max(), 1e-9) for term, values in paid.items()}
    return Course(steps, succeeded, shares, of(steps, grasped, succeeded))


def of(steps: np.ndarray, grasped: np.ndarray, succeeded: np.ndarray) -> list[Phase]:
    """Return the phases that were reached, one after the other from 0 to the last step.

    Args:
      steps: at the end of each cycle.
      grasped: share of its episodes that ended with the cube in the cup.
      succeeded: share of its episodes that succeeded.
    """
    # What is placed was grasped: success ends a phase whatever grasping pays.
    reached = [(grasped >= GRASPED) | (succeeded >= SUCCEEDED["discovery"])]
    reached += [succeeded >= share for share in SUCCEEDED.values()]
    found, start = [], 0.0
    for name, there in zip(RULES, [*reached, np.zeros(len(steps), bool)], strict=True):
        end = float(steps[int(np.argmax(there))] if there.any() else steps[-1])
        if end > start:
            found.append(Phase(name, start, end))
        if not there.any():
            break
        start = end
    return found
