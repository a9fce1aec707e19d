"""Rotations against SciPy's, including tiny and large angles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from jaxrl.motion import rotations

_JACOBIAN = jax.jit(jax.jacobian(lambda v: rotations.to_exp_map(rotations.from_exp_map(v))))


def _random(count, seed):
    turn = Rotation.random(count, rng=np.random.default_rng(seed))
    return turn, jnp.asarray(turn.as_quat(scalar_first=True), jnp.float32)


def _assert_same(q, turn, atol=1e-6):
    alike = np.abs(np.sum(np.asarray(q) * turn.as_quat(scalar_first=True), -1))
    np.testing.assert_allclose(alike, 1.0, atol=atol)


def test_products_and_rotated_vectors():
    (a, qa), (b, qb) = _random(8, 0), _random(8, 1)
    v = np.random.default_rng(2).normal(size=(8, 3))
    _assert_same(rotations.multiply(qa, qb), a * b)
    _assert_same(rotations.conjugate(qa), a.inv())
    np.testing.assert_allclose(rotations.rotate(qa, jnp.float32(v)), a.apply(v), atol=1e-5)
    six = np.concatenate([a.apply([1, 0, 0]), a.apply([0, 0, 1])], -1)
    np.testing.assert_allclose(rotations.rot6d(qa), six, atol=1e-6)


def test_exp_map_and_angle_between():
    (a, qa), (b, qb) = _random(8, 0), _random(8, 1)
    np.testing.assert_allclose(rotations.to_exp_map(-qa), a.as_rotvec(), atol=1e-5)
    _assert_same(rotations.from_exp_map(jnp.float32(a.as_rotvec())), a)
    expected = (a.inv() * b).magnitude()
    np.testing.assert_allclose(rotations.angle_between(qa, -qb), expected, atol=1e-5)


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e-7, 1e-4, 1e-2, 3.1415])
def test_small_and_large_angles_are_precise(size):
    v = jnp.asarray([0.6, 0.0, -0.8], jnp.float32) * size
    q = rotations.from_exp_map(v)
    np.testing.assert_allclose(rotations.to_exp_map(q), v, rtol=2e-6, atol=1e-12)
    one = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(rotations.angle_between(one, q), size, rtol=2e-6, atol=2e-6)
    jacobian = _JACOBIAN(v)
    if size < 3:
        np.testing.assert_allclose(jacobian, np.eye(3), atol=1e-3)


def test_slerp_takes_the_shorter_arc():
    (a, qa), (b, qb) = _random(8, 3), _random(8, 4)
    part = np.linspace(0.0, 1.0, 8)
    found = rotations.slerp(qa, -qb, jnp.float32(part))
    for i in range(8):
        _assert_same(found[i], Slerp([0, 1], Rotation.concatenate([a[i], b[i]]))(part[i]))
    np.testing.assert_allclose(rotations.slerp(qa, qa, jnp.float32(part)), qa, atol=1e-6)


def test_heading_is_the_rotation_about_the_vertical():
    _, q = _random(8, 5)
    yaw = jnp.linspace(-3.0, 3.0, 8)
    lean = rotations.from_exp_map(jnp.asarray([[0.3, 0.9, 0.0]] * 8))
    turned = rotations.multiply(rotations.from_yaw(yaw), lean)
    error = rotations.angle_between(rotations.heading(turned), rotations.from_yaw(yaw))
    np.testing.assert_allclose(error, 0.0, atol=1e-5)
    rest = rotations.multiply(rotations.inverse_heading(q), q)
    np.testing.assert_allclose(rest[:, 3], 0.0, atol=1e-6)
    upside_down = jnp.asarray([0.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(rotations.heading(upside_down), [1, 0, 0, 0])
