"""Custom environments with non-finite values, and one with start positions."""

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.envs.tasks import probes
from jaxrl.envs.tasks.probe_base import Probe, ProbeState


class Overflow(probes.Exploding):
    """From step 40 on, rewards are finite but overflow when squared."""

    def __init__(self):
        super().__init__(k=40, value=3e38, in_obs=False)


class Breaks(Probe):
    """Observes NaN from step `first` of every episode on; episodes end after seven steps.

    The first four steps reward large actions. `first` is a curriculum, so an argument of compiled
    programs: tests with other values can share them.
    """

    first = 5
    length = 7

    def first_curriculum(self):
        return {"first": np.float32(self.first)}

    def reset(self, rng, curriculum=None):
        first = curriculum["first"] if curriculum else jnp.float32(self.first)
        probe, zero = ProbeState(first, jnp.zeros((), jnp.int32)), jnp.zeros(())
        return base.State(probe, self.observe(probe), zero, zero)

    def observe(self, probe):
        return jnp.where(probe.steps >= probe.secret, jnp.nan, jnp.float32(1.0))[None]

    def reward(self, probe, action):
        return jnp.where(probe.steps < 4, 1.0 + action[0], 1.0)


class Push(base.Env):
    """Episodes start anywhere in a square; those on the right succeed at their third step.

    Actions have no effect. Episodes that start left of -0.5 never grasp; those that fail are
    truncated after 6 steps.
    """

    episode_length = 6
    observation_size, action_size, backend = 2, 1, "none"

    def reset(self, rng):
        place = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0)
        zero = jnp.zeros(())
        metrics = {"success": zero, "grasped": zero, "effort": zero}
        physics = {"start": place, "steps": jnp.zeros((), jnp.int32)}
        return base.State(physics, place, zero, zero, metrics)

    def step(self, state, action):
        start, steps = state.pipeline_state["start"], state.pipeline_state["steps"] + 1
        success = ((start[0] > 0) & (steps >= 3)).astype(jnp.float32)
        grasped = ((start[0] > -0.5) & (steps == 2)).astype(jnp.float32)
        metrics = {"success": success, "grasped": grasped, "effort": jnp.abs(start[1])}
        physics = {"start": start, "steps": steps}
        return state.replace(
            pipeline_state=physics, obs=start, reward=start[0], done=success, metrics=metrics
        )

    def start_position(self, state):
        return state.pipeline_state["start"]
