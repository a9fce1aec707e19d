"""Quaternions and spatial vectors of MJX, as sums of permuted products.

MJX computes components one by one and puts them together. XLA makes several small kernels of that
for each level of the kinematic tree, but one of products of whole vectors, whose components are
permuted by constants. Names, arguments and results are MJX's: a spatial vector (6,) is an angular
part followed by a linear one.
"""

import jax.numpy as jnp
import numpy as np

from jaxrl.types import Array

# Axes from each one on; a × b = a[NEXT] b[LAST] - a[LAST] b[NEXT].
_NEXT, _LAST = np.asarray([1, 2, 0]), np.asarray([2, 0, 1])
_ANGULAR = np.asarray([1, 1, 1, 0, 0, 0], np.float32)
_LINEAR = 1 - _ANGULAR
# Hamilton's product is the sum over i of a[i] * b[order] * signs.
_PRODUCT = (
    (np.asarray([0, 1, 2, 3]), np.asarray([1, 1, 1, 1], np.float32)),
    (np.asarray([1, 0, 3, 2]), np.asarray([-1, 1, -1, 1], np.float32)),
    (np.asarray([2, 3, 0, 1]), np.asarray([-1, 1, 1, -1], np.float32)),
    (np.asarray([3, 2, 1, 0]), np.asarray([-1, -1, 1, 1], np.float32)),
)
# u × v = (skew of u) v, whose elements are those of u with signs.
_SKEW = np.asarray([[0, 2, 1], [2, 0, 0], [1, 0, 0]])
_SKEW_SIGNS = np.asarray([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], np.float32)
_INERTIA = np.asarray([[0, 3, 4], [3, 1, 5], [4, 5, 2]])  # of its 6 different elements


def cross(a: Array, b: Array) -> Array:
    """Return the cross products of vectors [..., 3]."""
    return a[..., _NEXT] * b[..., _LAST] - a[..., _LAST] * b[..., _NEXT]


def rotate(vec: Array, quat: Array) -> Array:
    """Rotate a vector by a unit quaternion."""
    if vec.ndim != 1:
        raise ValueError("vec must have no batch dimensions.")
    s, u = quat[0], quat[1:]
    rotated = 2 * (_dot(u, vec) * u) + (s * s - _dot(u, u)) * vec
    return rotated + 2 * s * cross(u, vec)


def quat_mul(u: Array, v: Array) -> Array:
    """Multiply quaternions [..., 4]."""
    leading = (1,) * (v.ndim - 1)
    terms = [
        u[..., i, None] * (v[..., order] * signs.reshape(*leading, 4))
        for i, (order, signs) in enumerate(_PRODUCT)
    ]
    return (terms[0] + terms[1]) + (terms[2] + terms[3])


def quat_to_mat(q: Array) -> Array:
    """Return the rotation matrix of a quaternion."""
    s, u = q[0], q[1:]
    skew = u[_SKEW] * _SKEW_SIGNS
    diagonal = (s * s - _dot(u, u)) * np.eye(3, dtype=np.float32)
    return 2 * u[:, None] * u[None, :] + 2 * s * skew + diagonal


def axis_angle_to_quat(axis: Array, angle: Array) -> Array:
    """Return the rotation about a unit axis."""
    real = np.asarray([1, 0, 0, 0], np.float32)
    return (
        jnp.cos(angle * 0.5) * real
        + jnp.sin(angle * 0.5) * (1 - real) * axis[np.asarray([0, 0, 1, 2])]
    )


def motion_cross(u: Array, v: Array) -> Array:
    """Return the cross product of two spatial motions."""
    return _crosses(u, 0, 0, v, 0, 3) + _crosses(u, 3, 3, v, 0, 0) * _LINEAR


def motion_cross_force(v: Array, f: Array) -> Array:
    """Return the cross product of a spatial motion and a spatial force."""
    return _crosses(v, 0, 0, f, 0, 3) + _crosses(v, 3, 3, f, 3, 3) * _ANGULAR


def inert_mul(i: Array, v: Array) -> Array:
    """Multiply a spatial inertia (10: matrix, first moments, mass) by a motion: a force."""
    columns = np.concatenate([_INERTIA, np.zeros((3, 3), int)])
    turning = sum((i[columns[:, k]] * v[k] for k in (1, 2)), i[columns[:, 0]] * v[0])
    moments = _crosses(i, 6, 6, v, 3, 0)
    linear = np.asarray([3, 4, 5, 3, 4, 5])
    return (turning + moments) * _ANGULAR + (i[9] * v[linear] - moments) * _LINEAR


def _dot(a: Array, b: Array) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _crosses(a: Array, a1: int, a2: int, b: Array, b1: int, b2: int) -> Array:
    """Return two cross products one after the other: of vectors that begin at these elements."""
    next_a, last_a = _pair(_NEXT, a1, a2), _pair(_LAST, a1, a2)
    next_b, last_b = _pair(_NEXT, b1, b2), _pair(_LAST, b1, b2)
    return a[next_a] * b[last_b] - a[last_a] * b[next_b]


def _pair(order: np.ndarray, first: int, second: int) -> np.ndarray:
    return np.concatenate([order + first, order + second])
