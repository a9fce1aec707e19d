"""Trained policies and rewards as files.

`load` reads and plays a policy, `reward_files` a learnt reward, `files` is their format, `export`
writes a policy that runs without jaxrl.
"""

from jaxrl.policies.load import LoadedPolicy, load_policy, player, run_episodes
from jaxrl.policies.reward_files import LoadedReward, load_reward

__all__ = [
    "LoadedPolicy",
    "LoadedReward",
    "load_policy",
    "load_reward",
    "player",
    "run_episodes",
]
