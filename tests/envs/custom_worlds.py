"""Environments as a user might write them: good ones, careless ones and wrong ones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.envs import probes

NOT_CALLABLE = 3


class Plain(probes.Counter):
    """Take no backend."""


class Backed(probes.Counter):
    """Take a backend."""

    def __init__(self, backend: str = "its own choice"):
        self.backend = backend


class OpenEnded(probes.Counter):
    """Take anything."""

    def __init__(self, **kwargs):
        self.kwargs = kwargs


class NotAnEnvironment:
    """Have nothing that an environment needs but a size."""

    action_size = 1


class Loose(probes.Counter):
    """Return weak, double-precision, integer and boolean numbers where reset gave float32."""

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, metrics={"height": 0.0, "success": jnp.float32(0)})

    def step(self, state, action):
        after = super().step(state, action)
        steps = after.pipeline_state.steps
        return dataclasses.replace(
            after,
            obs=jnp.where(steps > 0, steps, 0)[None],  # int32
            reward=steps,  # int32
            done=steps > 1000,  # bool
            metrics={"height": np.float64(1.5), "success": steps > 1},
        )


class FirstIntegers(probes.Counter):
    """Give integers at reset, as `jnp.array([0])` does, and fractions after that."""

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, obs=jnp.array([0]), reward=jnp.array(0))

    def step(self, state, action):
        after = super().step(state, action)
        half = jnp.float32(0.5)
        return dataclasses.replace(after, obs=half[None], reward=half)


class Cutting(probes.Counter):
    """Report a truncation of its own after `cut` steps, with or without `done`, then carry on."""

    def __init__(self, cut: int = 2, done: bool = True):
        self.cut, self.done = cut, done

    def reset(self, rng):
        state = super().reset(rng)
        return dataclasses.replace(state, info={"truncation": jnp.float32(0)})

    def step(self, state, action):
        after = super().step(state, action)
        cut = (after.pipeline_state.steps == self.cut).astype(jnp.float32)
        return dataclasses.replace(
            after, done=cut if self.done else after.done, info={"truncation": cut}
        )


class Measured(probes.Counter):
    """Report as metrics the count, and success on even counts only."""

    def _measure(self, state):
        steps = state.pipeline_state.steps
        success = (steps > 0) & (steps % 2 == 0)
        metrics = {"height": steps.astype(jnp.float32), "success": success.astype(jnp.float32)}
        return dataclasses.replace(state, metrics=metrics)

    def reset(self, rng):
        return self._measure(super().reset(rng))

    def step(self, state, action):
        return self._measure(super().step(state, action))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Physics:
    """What `sys` is for a user's own environment."""

    speed: jax.Array
    width: jax.Array


class Discrete(base.Env):
    """Have physics, discrete actions and a time limit of its own."""

    num_actions = action_size = 3
    observation_size = 1
    episode_length = 7
    backend = "own"

    def __init__(self):
        self.sys = Physics(jnp.float32(1.0), jnp.float32(2.0))

    def reset(self, rng):
        return base.State(jnp.zeros(()), jnp.zeros(1), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        return dataclasses.replace(state, obs=state.obs + self.sys.speed)
