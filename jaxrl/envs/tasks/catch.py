"""Catch: a ball falls and a paddle below moves to catch it; the observation is an image."""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from brax.envs import base
from flax import struct

from jaxrl.types import Array

LEFT, STAY, RIGHT = range(3)


class CatchState(struct.PyTreeNode):
    """Where ball and paddle are."""

    row: Array  # int32, of the ball
    column: Array  # int32, of the ball
    paddle: Array  # int32, its column, in the last row


class Catch(base.Env):
    """A board of 10 × 5; the reward is 1 for a catch, -1 for a miss, which ends the episode."""

    episode_length = 10
    rows, columns = 10, 5
    num_actions = 3
    action_size: int = num_actions
    observation_size: int = rows * columns
    backend: str = "jax"

    def reset(self, rng: Array) -> base.State:
        """Drop the ball from a random column."""
        column = jax.random.randint(rng, (), 0, self.columns, jnp.int32)
        state = CatchState(
            jnp.zeros((), jnp.int32), column, jnp.full((), self.columns // 2, jnp.int32)
        )
        zero = jnp.zeros((), jnp.float32)
        return base.State(cast(Any, state), self._image(state), zero, zero + 0.0)

    def step(self, state: base.State, action: Array) -> base.State:
        """Move the paddle, then let the ball fall by one row."""
        before = cast(CatchState, state.pipeline_state)
        paddle = jnp.clip(before.paddle + action - STAY, 0, self.columns - 1).astype(jnp.int32)
        after = CatchState(before.row + 1, before.column, paddle)
        down = after.row == self.rows - 1
        met = jnp.where(after.column == after.paddle, 1.0, -1.0)
        return dataclasses.replace(
            state,
            pipeline_state=after,
            obs=self._image(after),
            reward=jnp.where(down, met, 0.0).astype(jnp.float32),
            done=down.astype(jnp.float32),
        )

    def _image(self, state: CatchState) -> Array:
        rows = jnp.arange(self.rows)[:, None]
        columns = jnp.arange(self.columns)[None]
        ball = (rows == state.row) & (columns == state.column)
        paddle = (rows == self.rows - 1) & (columns == state.paddle)
        return jnp.where(ball | paddle, 255, 0).astype(jnp.uint8)[..., None]
