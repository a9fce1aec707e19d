"""A task that only memory can solve: say what was shown once, long ago."""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from brax.envs import base
from flax import struct


class RecallState(struct.PyTreeNode):
    """The symbol that was shown."""

    symbol: jax.Array


class Recall(base.Env):
    """Show one of four symbols at the first step, then nothing; every step asks which it was.

    A right answer pays 1. All observations after the first are the same, so whoever cannot
    remember is right once in four times: at most 1 + 95 / 4 of 96.
    """

    episode_length = 96
    num_actions = 4
    observation_size: int = num_actions
    action_size: int = num_actions
    backend: str = "jax"

    def reset(self, rng: jax.Array) -> base.State:
        """Draw a symbol and show it."""
        symbol = jax.random.randint(rng, (), 0, self.num_actions)
        reward, done, success = jnp.zeros(3, jnp.float32)
        shown = jax.nn.one_hot(symbol, self.num_actions, dtype=jnp.float32)
        hidden = cast(Any, RecallState(symbol))
        return base.State(hidden, shown, reward, done, metrics={"success": success})

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Pay for a right answer; show nothing from now on."""
        right = (action == cast(RecallState, state.pipeline_state).symbol).astype(jnp.float32)
        return dataclasses.replace(
            state,
            obs=jnp.zeros(self.num_actions, jnp.float32),
            reward=right,
            metrics={"success": right * 1.0},
        )
