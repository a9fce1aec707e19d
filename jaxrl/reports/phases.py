"""The five phases of learning to pick and place, defined by how often episodes grasp and succeed.

A phase ends at the first logged cycle that reaches a fraction of its episodes, and does not
return when the fraction falls again:

  initialisation  until 10 % of the episodes end with the cube in the cup, or in success
  discovery       until 5 % succeed
  skill           until 50 % succeed
  optimisation    until 95 % succeed
  convergence     from there on

Even random arms touch the cube now and then, so a single grasp means nothing. Letting go takes the
reward of grasping back, so its sum over an episode shows whether the cube was held at the end.
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
    **{name: f"until {rate:.0%} of the episodes succeed" for name, rate in SUCCEEDED.items()},
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
    succeeded: np.ndarray  # fraction of the episodes
    terms: dict[str, np.ndarray]  # of the reward, each relative to its maximum
    phases: list[Phase]


def metric(term: str) -> str:
    """Return the name under which a term of the reward is logged."""
    return f"rollout/ep_reward_{term}"


def course(rows: Sequence[dict[str, float]], grasp_reward: float) -> Course | None:
    """Return the phases of a run from its log; None for another task.

    Args:
      rows: points of the log.
      grasp_reward: reward of grasping the cube.
    """
    needed = (SUCCESS, *map(metric, TERMS))
    rows = [row for row in rows if all(np.isfinite(row.get(name, np.nan)) for name in needed)]
    if not rows:
        return None
    column = {name: np.array([row[name] for row in rows]) for name in ("step", *needed)}
    rewards = {term: column[metric(term)] for term in TERMS}
    steps, succeeded = column["step"], column[SUCCESS]
    grasped = rewards["grasp"] / grasp_reward if grasp_reward else np.zeros(len(rows))
    relative = {term: values / max(np.abs(values).max(), 1e-9) for term, values in rewards.items()}
    return Course(steps, succeeded, relative, find_phases(steps, grasped, succeeded))


def find_phases(steps: np.ndarray, grasped: np.ndarray, succeeded: np.ndarray) -> list[Phase]:
    """Return the phases that were reached, one after the other from 0 to the last step.

    Args:
      steps: at the end of each cycle.
      grasped: fraction of its episodes that ended with the cube in the cup.
      succeeded: fraction of its episodes that succeeded.
    """
    # Success implies a grasp, also where grasping has no reward.
    reached = [(grasped >= GRASPED) | (succeeded >= SUCCEEDED["discovery"])]
    reached += [succeeded >= rate for rate in SUCCEEDED.values()]
    phases, start = [], 0.0
    for name, is_reached in zip(RULES, [*reached, np.zeros(len(steps), bool)], strict=True):
        end = float(steps[int(np.argmax(is_reached))] if is_reached.any() else steps[-1])
        if end > start:
            phases.append(Phase(name, start, end))
        if not is_reached.any():
            break
        start = end
    return phases
