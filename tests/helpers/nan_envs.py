"""Environments of a user's own, as tests name them: tests.helpers.nan_envs:Overflow."""

import jax
import jax.numpy as jnp
from brax.envs import base

from jaxrl.envs.tasks import probes


class Overflow(probes.Exploding):
    """From step 40 on, rewards too large to learn from: finite, but infinite once squared."""

    def __init__(self):
        super().__init__(k=40, value=3e38, in_obs=False)


class Breaks(probes.Exploding):
    """Shows no number from the fifth step of every episode on."""

    def __init__(self):
        super().__init__(k=5, in_reward=False)


class NanStart(probes.Exploding):
    """Shows no number at reset."""

    def __init__(self):
        super().__init__(k=0, in_reward=False)


class Push(base.Env):
    """Start anywhere in a square; those on the right succeed at their third step.

    Nothing that is done matters. Who starts left of -0.5 never grasps; who fails runs into the
    time limit of 6 steps.
    """

    episode_length = 6
    observation_size, action_size, backend = 2, 1, "none"

    def reset(self, rng):
        place = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0)
        zero = jnp.zeros(())
        metrics = {"success": zero, "grasped": zero, "effort": zero}
        inside = {"start": place, "steps": jnp.zeros((), jnp.int32)}
        return base.State(inside, place, zero, zero, metrics)

    def step(self, state, action):
        start, steps = state.pipeline_state["start"], state.pipeline_state["steps"] + 1
        won = ((start[0] > 0) & (steps >= 3)).astype(jnp.float32)
        grasped = ((start[0] > -0.5) & (steps == 2)).astype(jnp.float32)
        metrics = {"success": won, "grasped": grasped, "effort": jnp.abs(start[1])}
        inside = {"start": start, "steps": steps}
        return state.replace(
            pipeline_state=inside, obs=start, reward=start[0], done=won, metrics=metrics
        )

    def start_position(self, state):
        return state.pipeline_state["start"]
