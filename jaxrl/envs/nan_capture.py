"""The first non-finite step of every environment, for a report.

Stored only if the run is to stop there (--task.on-nan stop): it doubles an environment's state.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.envs.env_state import PackedEnvState, truncation
from jaxrl.envs.rows import choose
from jaxrl.types import Array, PyTree

if TYPE_CHECKING:
    from brax.envs.base import State

NEVER = -1


class NonFiniteCapture(struct.PyTreeNode):
    """One row per environment."""

    steps: Array  # int32 [N], actions taken since the run began
    captured_at: Array  # int32 [N], the step that became non-finite, or NEVER
    age: Array  # int32 [N], environment steps since its episode began, before that step
    before: PackedEnvState  # the state before that step: finite, unless its reset was not
    action: Array
    obs: PyTree  # after that step, as are all below
    reward: Array
    done: Array
    truncation: Array


def empty(packed: PackedEnvState, action: Array, reward: Array) -> NonFiniteCapture:
    """Return a capture without any step; only the shapes of the arguments count."""
    zero = jnp.zeros(reward.shape[:1], jnp.int32)
    flag = jnp.zeros(zero.shape, jnp.float32)
    blank = jax.tree.map(jnp.zeros_like, packed)
    action, reward = jnp.zeros_like(action), jnp.zeros_like(reward)
    return NonFiniteCapture(zero, zero + NEVER, zero, blank, action, blank.obs, reward, flag, flag)


def capture(
    captured: NonFiniteCapture,
    finite: Array,
    age: Array,
    before: PackedEnvState,
    action: Array,
    after: "State",
) -> NonFiniteCapture:
    """Count a step, and store it where an environment is non-finite for the first time."""
    steps = captured.steps + 1
    flags = after.done.astype(jnp.float32), truncation(after).astype(jnp.float32)
    action = action.astype(captured.action.dtype)
    now = NonFiniteCapture(steps, steps, age, before, action, after.obs, after.reward, *flags)
    first = ~finite & (captured.captured_at == NEVER)
    return choose(first, now, captured).replace(steps=steps)
