"""Environments whose numbers stopped making sense: what they were doing when it happened.

Kept only where the run is to stop there (--task.on-nan stop): it doubles what an environment's
state takes. The first time counts; after it an environment starts anew as always.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.envs.rows import choose
from jaxrl.envs.world import World
from jaxrl.types import Array, PyTree

NEVER = -1


class Broken(struct.PyTreeNode):
    """One row per environment."""

    turns: Array  # int32 [N], actions taken since the run began
    at: Array  # int32 [N], the turn it broke at, or NEVER
    age: Array  # int32 [N], environment steps since its episode began, before that turn
    before: World  # its state before that turn, still fine
    action: Array  # what was done
    obs: PyTree  # what was seen then
    reward: Array  # and paid


def nothing(world: World, action: Array, reward: Array) -> Broken:
    """Begin with nothing broken; only the shapes of what is given count."""
    none = jnp.zeros(reward.shape[:1], jnp.int32)
    blank = jax.tree.map(jnp.zeros_like, (world, action, world.obs, reward))
    return Broken(none, none + NEVER, none, *blank)


def note(
    noted: Broken, healthy: Array, age: Array, before: World, action: Array, after: Any
) -> Broken:
    """Count a turn, and keep what led to it where an environment broke for the first time."""
    now = (noted.turns + 1, age, before, action.astype(noted.action.dtype), after.obs, after.reward)
    kept = (noted.at, noted.age, noted.before, noted.action, noted.obs, noted.reward)
    first = ~healthy & (noted.at == NEVER)
    return Broken(noted.turns + 1, *choose(first, now, kept))
