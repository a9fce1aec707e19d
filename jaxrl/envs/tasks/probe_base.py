"""The base of probe environments: a hidden number, a step count, and a fixed length."""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from brax.envs import base
from flax import struct

NEVER = 2**31 - 1  # more steps than an int32 counts


class ProbeState(struct.PyTreeNode):
    """The state of a probe: a number sampled at reset and the steps taken since."""

    secret: jax.Array
    steps: jax.Array


def as_float(value: jax.typing.ArrayLike) -> jax.Array:
    """Copy to a float32 without weak type, so reset and step outputs agree.

    A caller that donates the state must not pass one buffer twice.
    """
    return jnp.array(value, jnp.float32)


def match(action: jax.Array, sign: jax.Array) -> jax.Array:
    """Return +1 where action 0 or 1 stands for the sign -1 or +1, else -1."""
    return jnp.where((action == 1) == (sign > 0), 1.0, -1.0)


class Probe(base.Env):
    """Observe and reward a sign sampled at reset; subclasses override the parts that differ."""

    episode_length: int = 10
    length: int = NEVER  # steps after which the probe itself terminates
    observation_size: base.ObservationSize = 1
    action_size: int = 1
    backend: str = "jax"

    def reset(self, rng: jax.Array) -> base.State:
        """Sample the secret and start counting."""
        probe = ProbeState(as_float(self.sample_secret(rng)), jnp.zeros((), jnp.int32))
        # Brax names its own physics state as the type, but takes any pytree.
        return base.State(cast(Any, probe), self.observe(probe), as_float(0.0), as_float(0.0))

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Reward the action in the current state, then count the step."""
        before = cast(ProbeState, state.pipeline_state)
        after = ProbeState(before.secret, before.steps + 1)
        return dataclasses.replace(
            state,
            pipeline_state=after,
            obs=self.observe(after),
            reward=as_float(self.reward(before, action)),
            done=as_float(self.is_over(after)),
        )

    def sample_secret(self, rng: jax.Array) -> jax.Array:
        """Sample the secret of an episode."""
        return jnp.where(jax.random.uniform(rng) < 0.5, -1.0, 1.0)

    def observe(self, probe: ProbeState) -> base.Observation:
        """Show the secret."""
        return probe.secret[None]

    def reward(self, probe: ProbeState, action: jax.Array) -> jax.Array:
        """Return the reward of an action taken in a state."""
        return probe.secret

    def is_over(self, probe: ProbeState) -> jax.Array:
        """Return whether the episode has terminated."""
        return probe.steps >= self.length
