"""The first non-finite step of every environment, for a report.

Stored only where the run is to stop there (--task.on-nan stop): it doubles an environment's state.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.envs.env_state import PackedEnvState, truncation
from jaxrl.envs.rows import choose
from jaxrl.types import Array, PyTree

NEVER = -1


class NonFiniteCapture(struct.PyTreeNode):
    """One row per environment."""

    turns: Array  # int32 [N], actions taken since the run began
    at: Array  # int32 [N], the turn it broke at, or NEVER
    age: Array  # int32 [N], environment steps since its episode began, before that turn
    before: PackedEnvState  # its state before that turn: finite, unless its reset was not
    action: Array
    obs: PyTree  # after that turn, as are all below
    reward: Array
    done: Array
    truncation: Array


def nothing(world: PackedEnvState, action: Array, reward: Array) -> NonFiniteCapture:
    """Begin with nothing broken; only the shapes of the arguments count."""
    none = jnp.zeros(reward.shape[:1], jnp.int32)
    flag = jnp.zeros(none.shape, jnp.float32)
    blank = jax.tree.map(jnp.zeros_like, world)
    taken, paid = jnp.zeros_like(action), jnp.zeros_like(reward)
    return NonFiniteCapture(none, none + NEVER, none, blank, taken, blank.obs, paid, flag, flag)


def note(
    noted: NonFiniteCapture,
    healthy: Array,
    age: Array,
    before: PackedEnvState,
    action: Array,
    after: Any,
) -> NonFiniteCapture:
    """Count a turn, and store it where an environment is non-finite for the first time."""
    turns = noted.turns + 1
    flags = after.done.astype(jnp.float32), truncation(after).astype(jnp.float32)
    taken = action.astype(noted.action.dtype)
    now = NonFiniteCapture(turns, turns, age, before, taken, after.obs, after.reward, *flags)
    first = ~healthy & (noted.at == NEVER)
    return choose(first, now, noted).replace(turns=turns)
