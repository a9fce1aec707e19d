"""Rotations as unit quaternions (w, x, y, z), over any leading axes.

A rotation maps vectors from a body's frame to its parent's (or the world's) frame; q and -q are the
same rotation. All functions have finite gradients at the identity, where plain angles have none.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jaxrl.physics import spatial
from jaxrl.types import Array

_TINY = 1e-12  # below this squared norm, the first term of the series is used


def _part(q: Array) -> tuple[Array, Array]:
    return q[..., :1], q[..., 1:]


def _length(v: Array) -> tuple[Array, Array]:
    """Return the norms (1 where they are about zero), and a mask of those that are not."""
    squared = jnp.sum(v * v, -1, keepdims=True)
    nonzero = squared > _TINY
    return jnp.sqrt(jnp.where(nonzero, squared, 1.0)), nonzero


def normalize(q: Array) -> Array:
    """Return unit quaternions; for zeros, the identity."""
    length, nonzero = _length(q)
    return jnp.where(nonzero, q / length, _identity(q))


def _identity(q: Array) -> Array:
    return jnp.zeros_like(q).at[..., 0].set(1.0)


def multiply(a: Array, b: Array) -> Array:
    """Return the rotation b followed by a, as matrices multiply."""
    return spatial.quat_mul(a, b)


def conjugate(q: Array) -> Array:
    """Return the inverse rotation."""
    return _signed(q, (1.0, -1.0, -1.0, -1.0))


def _signed(x: Array, signs: Sequence[float]) -> Array:
    return x * np.asarray(signs, np.float32).reshape((1,) * (x.ndim - 1) + (-1,))


def rotate(q: Array, v: Array) -> Array:
    """Rotate vectors."""
    w, u = _part(q)
    twice = 2.0 * spatial.cross(u, v)
    return v + w * twice + spatial.cross(u, twice)


def from_axis_angle(axis: Array, angle: Array) -> Array:
    """Return the rotations about unit axes [..., 3] by angles [...]."""
    half = 0.5 * angle[..., None]
    return jnp.concatenate([jnp.cos(half), jnp.sin(half) * axis], -1)


def from_exp_map(v: Array) -> Array:
    """Return the rotations about v by |v| radians."""
    angle, nonzero = _length(v)
    scale = jnp.where(nonzero, jnp.sin(0.5 * angle) / angle, 0.5)
    w = jnp.where(nonzero, jnp.cos(0.5 * angle), 1.0)
    return jnp.concatenate([w, scale * v], -1)


def to_exp_map(q: Array) -> Array:
    """Return axis times angle, with an angle of at most pi."""
    w, v = _part(jnp.where(q[..., :1] < 0, -q, q))
    sine, nonzero = _length(v)
    # arccos(w) would lose half of the digits near the identity; arctan2 keeps them.
    scale = jnp.where(nonzero, 2.0 * jnp.arctan2(sine, w) / sine, 2.0)
    return scale * v


def angle_between(a: Array, b: Array) -> Array:
    """Return the angle [...] in [0, pi] between two rotations."""
    w, v = _part(multiply(conjugate(a), b))
    sine, nonzero = _length(v)
    angle = jnp.where(nonzero, 2.0 * jnp.arctan2(sine, jnp.abs(w)), 0.0)
    return angle[..., 0]


def slerp(a: Array, b: Array, fraction: Array) -> Array:
    """Return the rotations at fractions [...] of the shortest path from a to b."""
    step = to_exp_map(multiply(conjugate(a), b))
    return normalize(multiply(a, from_exp_map(fraction[..., None] * step)))


def rot6d(q: Array) -> Array:
    """Return the rotated x and z axes [..., 6]: a continuous representation for networks."""
    w, u = _part(q)
    # An axis e becomes (2 w² - 1) e + 2 (u · e) u + 2 w u × e.
    along = u[..., np.asarray([0, 0, 0, 2, 2, 2])] * u[..., np.asarray([0, 1, 2, 0, 1, 2])]
    across = _signed(u[..., np.asarray([0, 2, 1, 1, 0, 2])], (0.0, 1.0, -1.0, 1.0, -1.0, 0.0))
    axes = _signed(jnp.broadcast_to(2.0 * w * w - 1.0, across.shape), (1.0, 0, 0, 0, 0, 1.0))
    return axes + 2.0 * (along + w * across)


def from_yaw(yaw: Array) -> Array:
    """Return the rotations about the vertical by angles [...]."""
    half = 0.5 * yaw
    zero = jnp.zeros_like(half)
    return jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)], -1)


def heading(q: Array) -> Array:
    """Return the rotations about the vertical that are part of q.

    This is the twist about z, undefined only upside down. The direction of the rotated x axis,
    which others use, is undefined for a body that lies on its face, and jumps in a somersault.
    """
    w, z = q[..., 0], q[..., 3]
    zero = jnp.zeros_like(w)
    return normalize(jnp.stack([w, zero, zero, z], -1))


def inverse_heading(q: Array) -> Array:
    """Return the rotations from the world frame to the heading frame of q."""
    return conjugate(heading(q))
