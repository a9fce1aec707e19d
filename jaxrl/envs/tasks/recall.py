"""Tasks that need memory: name the symbol that was observed at the first step."""

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


class MatchState(struct.PyTreeNode):
    """The symbol to name, and the steps since it was shown."""

    symbol: jax.Array
    steps: jax.Array


class DelayedMatch(base.Env):
    """Observe one of four symbols, then `gap` random ones; name the first when asked.

    An observation is a symbol, one-hot, and whether the answer is due. The only reward is 1 for the
    right answer. Nothing marks the first symbol but that nothing came before it: a policy without
    memory is right one time in four.
    """

    num_actions = 4
    observation_size: int = num_actions + 1
    action_size: int = num_actions
    backend: str = "jax"

    def __init__(self, gap: int = 40):
        self.gap = int(gap)
        self.episode_length = self.gap + 2

    def reset(self, rng: jax.Array) -> base.State:
        """Sample a symbol and show it."""
        rng, key = jax.random.split(rng)
        symbol = jax.random.randint(key, (), 0, self.num_actions)
        reward, done, success = jnp.zeros(3, jnp.float32)
        hidden = cast(Any, MatchState(symbol, jnp.zeros((), jnp.int32)))
        metrics, info = {"success": success}, {"rng": rng}
        return base.State(hidden, self._observe(symbol), reward, done, metrics, info)

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Show another symbol, or ask; the answer ends the episode."""
        before = cast(MatchState, state.pipeline_state)
        rng, key = jax.random.split(state.info["rng"])
        steps = before.steps + 1
        asked = steps == self.gap + 1
        other = self._observe(jax.random.randint(key, (), 0, self.num_actions))
        question = jnp.zeros_like(other).at[-1].set(1.0)
        answered = before.steps == self.gap + 1
        right = (answered & (action == before.symbol)).astype(jnp.float32)
        return dataclasses.replace(
            state,
            pipeline_state=cast(Any, before.replace(steps=steps)),
            obs=jnp.where(asked, question, other),
            reward=right,
            done=answered.astype(jnp.float32),
            metrics={"success": right},
            info=dict(state.info) | {"rng": rng},
        )

    def _observe(self, symbol: jax.Array) -> jax.Array:
        return jax.nn.one_hot(symbol, self.num_actions + 1, dtype=jnp.float32)
