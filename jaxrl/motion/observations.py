"""Observations and rewards of motion tracking.

All quantities are in the heading frame: the root's horizontal position and yaw are removed, so that
a motion looks the same wherever it happens.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxrl.motion import rotations
from jaxrl.motion.library import Reference
from jaxrl.types import Array


class RewardTerms(NamedTuple):
    """Reward terms of a step, before weighting; each is 1 for perfect tracking."""

    position: Array
    rotation: Array
    velocity: Array
    spin: Array


def _frame(now: Reference) -> Array:
    """Return the rotation from the world to the heading frame, for every body [J, 4]."""
    rotation = rotations.inverse_heading(now.rotation[..., 0, :])
    return jnp.broadcast_to(rotation[..., None, :], now.rotation.shape)


def proprioception(now: Reference) -> Array:
    """Return root height, and positions, rotations and velocities of all bodies, [15 J - 2]."""
    frame = _frame(now)
    offset = now.position - now.position[..., :1, :]
    parts = [
        now.position[..., 0, 2:],
        _flat(rotations.rotate(frame, offset)[..., 1:, :]),
        _flat(rotations.rot6d(rotations.multiply(frame, now.rotation))),
        _flat(rotations.rotate(frame, now.velocity)),
        _flat(rotations.rotate(frame, now.spin)),
    ]
    return jnp.concatenate(parts, -1)


def goal_obs(now: Reference, target: Reference) -> Array:
    """Return a future reference, as differences from now and relative to the root, [24 J]."""
    frame = _frame(now)
    root = now.position[..., :1, :]
    change = rotations.multiply(target.rotation, rotations.conjugate(now.rotation))
    change = rotations.multiply(rotations.multiply(frame, change), rotations.conjugate(frame))
    parts = [
        rotations.rotate(frame, target.position - now.position),
        rotations.rot6d(change),
        rotations.rotate(frame, target.velocity - now.velocity),
        rotations.rotate(frame, target.spin - now.spin),
        rotations.rotate(frame, target.position - root),
        rotations.rot6d(rotations.multiply(frame, target.rotation)),
    ]
    return jnp.concatenate([_flat(part) for part in parts], -1)


def reward_terms(now: Reference, target: Reference, scales: tuple[float, ...]) -> RewardTerms:
    """Return exp(-scale × error), the errors being means over bodies (and axes)."""
    angle = rotations.angle_between(now.rotation, target.rotation)
    errors = (
        _squared(now.position - target.position),
        jnp.mean(jnp.square(angle), -1),
        _squared(now.velocity - target.velocity),
        _squared(now.spin - target.spin),
    )
    return RewardTerms(*(jnp.exp(-k * error) for k, error in zip(scales, errors, strict=True)))


def body_distances(now: Reference, target: Reference) -> Array:
    """Return each body's distance from its reference, [J] in metres."""
    return jnp.sqrt(jnp.sum(jnp.square(now.position - target.position), -1))


def _squared(x: Array) -> Array:
    return jnp.mean(jnp.square(x), (-2, -1))


def _flat(x: Array) -> Array:
    return x.reshape(*x.shape[:-2], -1)
