"""What a humanoid sees of itself and of the motion it follows, and what following is worth.

Everything is seen from the heading frame: the root's place and turn about the vertical are taken
out, so that a motion looks the same wherever it happens.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxrl.motion import rotations
from jaxrl.motion.library import Reference
from jaxrl.types import Array


class Terms(NamedTuple):
    """What a step earns, before weighting; each is 1 for perfect tracking."""

    position: Array
    rotation: Array
    velocity: Array
    spin: Array


def _frame(now: Reference) -> Array:
    """Return the turn from the world to the heading frame, for every body [J, 4]."""
    turn = rotations.unheading(now.rotation[..., 0, :])
    return jnp.broadcast_to(turn[..., None, :], now.rotation.shape)


def own(now: Reference) -> Array:
    """Return the view of oneself: height, places, turns and speeds of all bodies, [15 J - 2]."""
    frame = _frame(now)
    away = now.position - now.position[..., :1, :]
    parts = [
        now.position[..., 0, 2:],
        _flat(rotations.rotate(frame, away)[..., 1:, :]),
        _flat(rotations.six_d(rotations.multiply(frame, now.rotation))),
        _flat(rotations.rotate(frame, now.velocity)),
        _flat(rotations.rotate(frame, now.spin)),
    ]
    return jnp.concatenate(parts, -1)


def goal(now: Reference, then: Reference) -> Array:
    """Return the view of a reference to come: what differs, and where it is, [24 J]."""
    frame = _frame(now)
    root = now.position[..., :1, :]
    turn = rotations.multiply(then.rotation, rotations.conjugate(now.rotation))
    seen = rotations.multiply(rotations.multiply(frame, turn), rotations.conjugate(frame))
    parts = [
        rotations.rotate(frame, then.position - now.position),
        rotations.six_d(seen),
        rotations.rotate(frame, then.velocity - now.velocity),
        rotations.rotate(frame, then.spin - now.spin),
        rotations.rotate(frame, then.position - root),
        rotations.six_d(rotations.multiply(frame, then.rotation)),
    ]
    return jnp.concatenate([_flat(part) for part in parts], -1)


def terms(now: Reference, meant: Reference, scales: tuple[float, ...]) -> Terms:
    """Return exp(-scale × error), the errors being means over bodies (and axes)."""
    angle = rotations.angle_between(now.rotation, meant.rotation)
    errors = (
        _squared(now.position - meant.position),
        jnp.mean(jnp.square(angle), -1),
        _squared(now.velocity - meant.velocity),
        _squared(now.spin - meant.spin),
    )
    return Terms(*(jnp.exp(-k * error) for k, error in zip(scales, errors, strict=True)))


def distances(now: Reference, meant: Reference) -> Array:
    """Return how far each body is from where it should be, [J] in metres."""
    return jnp.sqrt(jnp.sum(jnp.square(now.position - meant.position), -1))


def _squared(x: Array) -> Array:
    return jnp.mean(jnp.square(x), (-2, -1))


def _flat(x: Array) -> Array:
    return x.reshape(*x.shape[:-2], -1)
