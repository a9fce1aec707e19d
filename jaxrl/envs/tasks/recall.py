"""A task that needs memory: name the symbol that was observed at the first step."""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from brax.envs import base
from flax import struct


class RecallState(struct.PyTreeNode):
    """The symbol of the first observation."""

    symbol: jax.Array


class Recall(base.Env):
    """Observe one of four symbols at the first step, then zeros; every action must name it.

    The reward is 1 for the right action. All observations after the first are the same, so a
    policy without memory is right one time in four: at most 1 + 95 / 4 of 96.
    """

    episode_length = 96
    num_actions = 4
    observation_size: int = num_actions
    action_size: int = num_actions
    backend: str = "jax"

    def reset(self, rng: jax.Array) -> base.State:
        """Sample a symbol and show it."""
        symbol = jax.random.randint(rng, (), 0, self.num_actions)
        reward, done, success = jnp.zeros(3, jnp.float32)
        obs = jax.nn.one_hot(symbol, self.num_actions, dtype=jnp.float32)
        hidden = cast(Any, RecallState(symbol))
        return base.State(hidden, obs, reward, done, metrics={"success": success})

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Reward the right answer; all later observations are zeros."""
        right = (action == cast(RecallState, state.pipeline_state).symbol).astype(jnp.float32)
        return dataclasses.replace(
            state,
            obs=jnp.zeros(self.num_actions, jnp.float32),
            reward=right,
            metrics={"success": right * 1.0},
        )
