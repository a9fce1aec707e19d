"""The five phases of learning to pick and place, by how often episodes grasp and succeed.

A phase ends at the first logged cycle that reaches a fraction of its episodes, and does not come
back when the fraction falls again:

  initialisation  until 10 % of the episodes end with the cube in the cup, or in success
  discovery       until 5 % succeed
  skill           until 50 % succeed
  optimisation    until 95 % succeed
  convergence     from there on

Even random arms touch the cube now and then: a single grasp would mean nothing. The reward of a
grasp is taken back by letting go, so its sum over an episode shows whether the cube was held at the
end.
"""

import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.envs.hooks import Phase, PhaseReport, Rows

TERMS = ("approach", "grasp", "lift", "place", "success")
SUCCESS = "rollout/success_rate"
GRASPED = 0.10
SUCCEEDED = {"discovery": 0.05, "skill": 0.50, "optimisation": 0.95}
RULES = {
    "initialisation": f"until {GRASPED:.0%} of the episodes end with the cube in the cup",
    **{name: f"until {rate:.0%} of the episodes succeed" for name, rate in SUCCEEDED.items()},
    "convergence": "from there on",
}


def metric(term: str) -> str:
    """Return the name under which a reward term is logged."""
    return f"rollout/ep_reward_{term}"


def learning_phases(config: TrainConfig, rows: Rows) -> PhaseReport | None:
    """Return the phases of a run from its log; None if the log lacks the reward terms."""
    grasp_reward = config.pick.grasp_reward
    needed = (SUCCESS, *map(metric, TERMS))
    rows = [row for row in rows if all(np.isfinite(row.get(name, np.nan)) for name in needed)]
    if not rows:
        return None
    column = {name: np.array([row[name] for row in rows]) for name in ("step", *needed)}
    rewards = {term: column[metric(term)] for term in TERMS}
    steps, succeeded = column["step"], column[SUCCESS]
    grasped = rewards["grasp"] / grasp_reward if grasp_reward else np.zeros(len(rows))
    terms = {term: values / max(np.abs(values).max(), 1e-9) for term, values in rewards.items()}
    return PhaseReport(steps, succeeded, terms, split(steps, grasped, succeeded))


def split(steps: np.ndarray, grasped: np.ndarray, succeeded: np.ndarray) -> list[Phase]:
    """Return the phases that were reached, one after the other from 0 to the last step.

    Args:
      steps: at the end of each cycle.
      grasped: fraction of its episodes that ended with the cube in the cup.
      succeeded: fraction of its episodes that succeeded.
    """
    # What is placed was grasped: success ends a phase whatever the reward of a grasp is.
    reached = [(grasped >= GRASPED) | (succeeded >= SUCCEEDED["discovery"])]
    reached += [succeeded >= rate for rate in SUCCEEDED.values()]
    phases, start = [], 0.0
    for name, ended in zip(RULES, [*reached, np.zeros(len(steps), bool)], strict=True):
        end = float(steps[int(np.argmax(ended))] if ended.any() else steps[-1])
        if end > start:
            phases.append(Phase(name, start, end, RULES[name]))
        if not ended.any():
            break
        start = end
    return phases
