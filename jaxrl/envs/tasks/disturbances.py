"""Pushes, and starts on the ground: what a tracker must withstand besides its clips.

A recovery is a countdown in seconds, 0 where there is none. While it runs, the clip waits at its
frame and the episode is not terminated; it ends at once when all bodies are near that frame.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.motion import rotations
from jaxrl.types import Array, Key

_NEAR = 0.5  # of the distance that terminates episodes: all bodies are as near after a recovery
_TINY = 1e-4  # seconds; differences of multiples of 1/30 are not exact
REWARD_PER_METRE = 5.0  # that the bodies come nearer on average while the clip waits, as in PHC


def pushed(key: Key, qvel: Array, speed: Array | float, probability: float) -> Array:
    """Return velocities [nv] after a push in a random direction, or as they were.

    A push changes the root's horizontal velocity by `speed`, in metres per second.
    """
    key_when, key_way = jax.random.split(key)
    angle = jax.random.uniform(key_way, (), jnp.float32, -math.pi, math.pi)
    size = jnp.where(jax.random.uniform(key_when) < probability, speed, 0.0)
    return qvel.at[:2].add(size * jnp.stack([jnp.cos(angle), jnp.sin(angle)]))


def lying_at(pose: Array, yaw: Array, root: Array) -> Array:
    """Return a fallen pose [nq], rotated about the vertical, where a root [3] is on the plane."""
    turned = rotations.multiply(rotations.from_yaw(yaw), pose[3:7])
    return jnp.concatenate([root[:2], pose[2:3], turned, pose[7:]])


class Recovery(NamedTuple):
    """A countdown after one more step."""

    left: Array  # seconds
    waits: Array  # bool: the clip waited in this step
    succeeded: Array  # bool: the bodies have come near in this step


def advance(left: Array, distances: Array, limit: float, step: float) -> Recovery:
    """Count a step of `step` seconds down, after which bodies are at distances [J].

    `limit` is the distance in metres that terminates episodes.
    """
    waits = left > 0.0
    succeeded = waits & (jnp.max(distances) < _NEAR * limit)
    rest = left - step
    return Recovery(jnp.where(succeeded | (rest < _TINY), 0.0, rest), waits, succeeded)
