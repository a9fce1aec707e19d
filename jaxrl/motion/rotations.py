"""Rotations as unit quaternions (w, x, y, z), over any leading axes.

A rotation takes vectors of a body's frame to its parent's (or the world's) frame; q and -q mean the
same. Everything here has finite gradients at the identity, where angles have none by themselves.
"""

import jax.numpy as jnp

from jaxrl.types import Array

_TINY = 1e-12  # squared lengths below this take the first term of the series instead


def _part(q: Array) -> tuple[Array, Array]:
    return q[..., :1], q[..., 1:]


def _length(v: Array) -> tuple[Array, Array]:
    """Return the lengths (one where they are about zero) and where they are not."""
    squared = jnp.sum(v * v, -1, keepdims=True)
    nonzero = squared > _TINY
    return jnp.sqrt(jnp.where(nonzero, squared, 1.0)), nonzero


def normalize(q: Array) -> Array:
    """Return quaternions of unit length; of zeros, the identity."""
    length, nonzero = _length(q)
    return jnp.where(nonzero, q / length, _identity(q))


def _identity(q: Array) -> Array:
    return jnp.zeros_like(q).at[..., 0].set(1.0)


def multiply(a: Array, b: Array) -> Array:
    """Return the rotation b followed by a, as matrices multiply."""
    (aw, av), (bw, bv) = _part(a), _part(b)
    w = aw * bw - jnp.sum(av * bv, -1, keepdims=True)
    return jnp.concatenate([w, aw * bv + bw * av + jnp.cross(av, bv)], -1)


def conjugate(q: Array) -> Array:
    """Return the opposite rotation."""
    w, v = _part(q)
    return jnp.concatenate([w, -v], -1)


def rotate(q: Array, v: Array) -> Array:
    """Turn vectors."""
    w, u = _part(q)
    twice = 2.0 * jnp.cross(u, v)
    return v + w * twice + jnp.cross(u, twice)


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
    """Return axis times angle, the short way: at most pi long."""
    w, v = _part(jnp.where(q[..., :1] < 0, -q, q))
    sine, nonzero = _length(v)
    # arccos(w) would lose half of the digits near the identity; arctan2 keeps them.
    scale = jnp.where(nonzero, 2.0 * jnp.arctan2(sine, w) / sine, 2.0)
    return scale * v


def angle_between(a: Array, b: Array) -> Array:
    """Return the angle [...] in [0, pi] that takes one rotation to the other."""
    w, v = _part(multiply(conjugate(a), b))
    sine, nonzero = _length(v)
    angle = jnp.where(nonzero, 2.0 * jnp.arctan2(sine, jnp.abs(w)), 0.0)
    return angle[..., 0]


def slerp(a: Array, b: Array, fraction: Array) -> Array:
    """Return the rotations at fractions [...] of the short way from a to b."""
    step = to_exp_map(multiply(conjugate(a), b))
    return normalize(multiply(a, from_exp_map(fraction[..., None] * step)))


def six_d(q: Array) -> Array:
    """Return the turned x and z axes [..., 6]: numbers without jumps, for networks."""
    x = jnp.zeros_like(q[..., 1:]).at[..., 0].set(1.0)
    z = jnp.zeros_like(x).at[..., 2].set(1.0)
    return jnp.concatenate([rotate(q, x), rotate(q, z)], -1)


def about_z(angle: Array) -> Array:
    """Return the rotations about the vertical by angles [...]."""
    half = 0.5 * angle
    zero = jnp.zeros_like(half)
    return jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)], -1)


def heading(q: Array) -> Array:
    """Return the part of rotations that turns about the vertical.

    It is the twist about z, undefined only upside down. The direction of the turned x axis, which
    others use, is undefined for a body that lies on its face, and jumps within a somersault.
    """
    w, z = q[..., 0], q[..., 3]
    zero = jnp.zeros_like(w)
    return normalize(jnp.stack([w, zero, zero, z], -1))


def unheading(q: Array) -> Array:
    """Return the rotations that take vectors of the world to the heading frame of q."""
    return conjugate(heading(q))
