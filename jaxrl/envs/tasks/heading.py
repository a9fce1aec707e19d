"""Walk in a commanded direction at a commanded speed: the task of AMP.

The humanoid starts at a time of a clip and gets a direction and a speed. The reward is for progress
alone; a discriminator (`--amp.weight`) rewards motion like the clips'.

An episode is a success if it ends upright and its mean speed, after two seconds to turn and
accelerate, was about the commanded one. With `--motion.command-every` commands change in the middle
of episodes; after each there are two seconds that do not count.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs import base

from jaxrl.envs.tasks.motion_env import MotionEnv
from jaxrl.motion import observations, rotations
from jaxrl.motion.clip import FPS
from jaxrl.motion.library import Reference
from jaxrl.types import Array, Key, PyTree

_MIN_HEIGHT = 0.55  # of the root, as a fraction of its height at rest
_START_SECONDS = 2.0  # not counted for success
_TOLERANCE = 0.2  # of the mean speed, as a fraction of the commanded one


class Heading(MotionEnv):
    """Walk in a given direction at a given speed."""

    episode_length = 300

    def reset(self, rng: Key) -> base.State:
        """Start at a time of a clip with a random command."""
        key_start, *key_command = jax.random.split(rng, 3)
        place = self.sample_start(key_start)
        start = self.reference(place)
        info = {
            **self._command(*key_command),
            "age": jnp.zeros(()),  # of the command, in seconds
            "distance": jnp.zeros(()),  # in metres, after the first seconds
            **self.amp_history(place),
        }
        if self.config.command_every:
            info |= {"rng": jax.random.split(rng, 4)[3], "expected": jnp.zeros(())}
        pose = self.humanoid.start(start.qpos, start.qvel)
        names = ("reward_speed", "reward_power", "speed_error", "speed", "command", "success")
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(self.humanoid.body_motion(pose), info),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics={name: jnp.zeros(()) for name in names},
            info=info,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Set servo targets; reward the speed in the commanded direction."""
        before: Any = state.pipeline_state
        pose, power = self.humanoid.move(before, self.absolute_target(action))
        now = self.humanoid.body_motion(pose)
        info = dict(state.info)
        info |= self.next_amp_history(info, now)
        # Over a control step: the root sways while walking.
        velocity = (pose.qpos[:2] - before.qpos[:2]) * FPS
        cos, sin = jnp.cos(info["direction"]), jnp.sin(info["direction"])
        speed = velocity[0] * cos + velocity[1] * sin
        sideways = velocity[1] * cos - velocity[0] * sin
        error = jnp.square(info["speed"] - speed) + 0.1 * jnp.square(sideways)
        reward = jnp.exp(-self.config.speed_scale * error)
        cost = -self.config.power_coef * power
        fallen = now.position[0, 2] < _MIN_HEIGHT * self.humanoid.model.qpos0[2]
        info |= _progress(info, speed)
        command, success = info["speed"], _has_speed(info) & ~fallen
        if self.config.command_every:
            info |= self._next_command(info)
        return dataclasses.replace(
            state,
            pipeline_state=pose,
            obs=self._observe(now, info),
            reward=reward + cost,
            done=fallen.astype(jnp.float32),
            metrics={
                "reward_speed": reward,
                "reward_power": cost,
                "speed_error": jnp.abs(command - speed),
                "speed": speed,
                "command": command,
                "success": success,
            },
            info=info,
        )

    def _command(self, key_speed: Key, key_direction: Key) -> dict[str, Array]:
        """Return a random command."""
        low, high = self.config.speeds
        return {
            "speed": jax.random.uniform(key_speed, (), jnp.float32, low, high),
            "direction": jax.random.uniform(key_direction, (), jnp.float32, -math.pi, math.pi),
        }

    def _next_command(self, info: dict[str, Array]) -> dict[str, Array]:
        """Return the command of the next step, and the age it has: sometimes a new one."""
        rng, key_when, *key_command = jax.random.split(info["rng"], 4)
        probability = min(1.0, 1.0 / (FPS * self.config.command_every))
        changes = jax.random.uniform(key_when) < probability
        new = self._command(*key_command) | {"age": jnp.zeros(())}
        return {"rng": rng} | {
            name: jnp.where(changes, value, info[name]) for name, value in new.items()
        }

    def _observe(self, now: Reference, info: dict[str, Array]) -> PyTree:
        direction = info["direction"]
        command = jnp.stack([jnp.cos(direction), jnp.sin(direction), jnp.zeros(())])
        command = rotations.rotate(rotations.inverse_heading(now.rotation[0]), command)
        proprioception = observations.proprioception(now)
        return self.with_amp(
            jnp.concatenate([proprioception, command[:2], info["speed"][None]]), info
        )


def _progress(info: dict[str, Array], speed: Array) -> dict[str, Array]:
    """Return age and distance after one more step; the first seconds add no distance.

    Where commands change, the distance that all of them ask for is counted, too.
    """

    def added(name: str, speed: Array) -> Array:
        return info[name] + jnp.where(info["age"] < _START_SECONDS, 0.0, speed / FPS)

    after = {"age": info["age"] + 1.0 / FPS, "distance": added("distance", speed)}
    return after | ({"expected": added("expected", info["speed"])} if "expected" in info else {})


def _has_speed(info: dict[str, Array]) -> Array:
    """Return whether the mean speed after the first seconds is about the commanded one."""
    expected = info.get("expected", info["speed"] * (info["age"] - _START_SECONDS))
    return (expected > 0.0) & (jnp.abs(info["distance"] - expected) <= _TOLERANCE * expected)
