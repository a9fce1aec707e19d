"""Go where one is told, in whatever manner the clips show: the task of AMP.

The humanoid starts in a moment of a clip and is told a direction and a speed. Only progress is
paid here; that it looks like walking is the business of a discriminator (`--amp.weight`).

An episode is a success if it ends on its feet and kept the speed it was told, on average, once it
had had two seconds to turn and get going.
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
from jaxrl.types import Array, Key

_FALLEN = 0.55  # of the height at rest
_STARTING = 2.0  # seconds
_CLOSE = 0.2  # of the speed asked for


class Heading(MotionEnv):
    """Walk in a given direction at a given speed."""

    episode_length = 300

    def reset(self, rng: Key) -> base.State:
        """Start in a moment of a clip with a command."""
        key_moment, key_speed, key_way = jax.random.split(rng, 3)
        clip, time, turn = self.moment(key_moment)
        start = self.reference(clip, time, turn)
        low, high = self.config.speeds
        info = {
            "speed": jax.random.uniform(key_speed, (), jnp.float32, low, high),
            "way": jax.random.uniform(key_way, (), jnp.float32, -math.pi, math.pi),
            "age": jnp.zeros(()),  # in seconds
            "gone": jnp.zeros(()),  # in metres, after the start
            **self.amp_before(clip, time),
        }
        pose = self.figure.start(start.qpos, start.qvel)
        names = ("reward_speed", "reward_power", "speed_error", "speed", "command", "success")
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(self.figure.body_motion(pose), info),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics={name: jnp.zeros(()) for name in names},
            info=info,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Aim the servos; pay for the speed in the right direction."""
        before: Any = state.pipeline_state
        pose, power = self.figure.move(before, self.absolute_target(action))
        now = self.figure.body_motion(pose)
        info = dict(state.info)
        info |= self.amp_after(info, now)
        # Over a whole step: the root sways while walking.
        went = (pose.qpos[:2] - before.qpos[:2]) * FPS
        speed = went[0] * jnp.cos(info["way"]) + went[1] * jnp.sin(info["way"])
        aside = went[1] * jnp.cos(info["way"]) - went[0] * jnp.sin(info["way"])
        miss = jnp.square(info["speed"] - speed) + 0.1 * jnp.square(aside)
        paid = jnp.exp(-self.config.speed_scale * miss)
        cost = -self.config.power_coef * power
        fallen = now.position[0, 2] < _FALLEN * self.figure.model.qpos0[2]
        info |= _further(info, speed)
        return dataclasses.replace(
            state,
            pipeline_state=pose,
            obs=self._observe(now, info),
            reward=paid + cost,
            done=fallen.astype(jnp.float32),
            metrics={
                "reward_speed": paid,
                "reward_power": cost,
                "speed_error": jnp.abs(info["speed"] - speed),
                "speed": speed,
                "command": info["speed"],
                "success": _kept_pace(info) & ~fallen,
            },
            info=info,
        )

    def _observe(self, now: Reference, info: dict[str, Array]) -> Any:
        way = jnp.stack([jnp.cos(info["way"]), jnp.sin(info["way"]), jnp.zeros(())])
        ahead = rotations.rotate(rotations.unheading(now.rotation[0]), way)
        view = jnp.concatenate([observations.own(now), ahead[:2], info["speed"][None]])
        return self.seen(view, info)


def _further(info: dict[str, Array], speed: Array) -> dict[str, Array]:
    """Return age and way after one more step; what is gone before the start is over is left out."""
    age = info["age"] + 1.0 / FPS
    step = jnp.where(info["age"] < _STARTING, 0.0, speed / FPS)
    return {"age": age, "gone": info["gone"] + step}


def _kept_pace(info: dict[str, Array]) -> Array:
    """Tell whether the mean speed since the start is about the one asked for."""
    meant = info["speed"] * (info["age"] - _STARTING)
    return (meant > 0.0) & (jnp.abs(info["gone"] - meant) <= _CLOSE * meant)
