"""Forward kinematics of an arm by a parallel scan over its joints.

MJX goes down a chain one body after the other. XLA fuses this into one kernel that recomputes all
ancestors of a body for every output: on CPUs seven joints take a thousand times as long as they
should. Here rotations are multiplied in pairs, pairs of pairs, and so on.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from jaxrl.types import Array

_IDENTITY = np.array([[1, 0, 0, 0]], np.float32)


class Chain:
    """A chain of hinges, each at the origin of its body; then a free body, then fixed bodies."""

    def __init__(self, model: mujoco.MjModel):
        hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        self.number = number = int(np.sum(hinges))
        in_order = np.array_equal(model.body_parentid[1 : number + 1], np.arange(number))
        aligned = np.all(model.body_quat == [1, 0, 0, 0]) and not np.any(model.jnt_pos)
        if not (np.all(hinges[:number]) and len(hinges) == number + 1 and in_order and aligned):
            raise ValueError("not a chain of hinges and a free body with aligned frames at rest")
        self._model = model
        self._axes = model.jnt_axis[:number].astype(np.float32)
        self._offsets = model.body_pos[1 : number + 1].astype(np.float32)

    def kinematics(self, data: mjx.Data) -> mjx.Data:
        """Compute what `mjx.kinematics` does: poses of bodies, geoms and sites."""
        model, number = self._model, self.number
        links, link_positions = self._links(data.qpos[:number])
        cube = data.qpos[number:]
        cube_quat = cube[3:7] / jnp.linalg.norm(cube[3:7])
        rest = np.tile(_IDENTITY, (model.nbody - number - 2, 1))
        xquat = jnp.concatenate([_IDENTITY, links, cube_quat[None], rest])
        fixed = model.body_pos[number + 2 :].astype(np.float32)
        xpos = jnp.concatenate(
            [np.zeros((1, 3), np.float32), link_positions, cube[None, :3], fixed]
        )
        axes = jnp.concatenate([_rotate(links, self._axes), np.eye(3, dtype=np.float32)[2:]])
        bodies = np.arange(model.nbody)
        xipos, ximat = _attached(xpos, xquat, bodies, model.body_ipos, model.body_iquat)
        geoms = _attached(xpos, xquat, model.geom_bodyid, model.geom_pos, model.geom_quat)
        sites = _attached(xpos, xquat, model.site_bodyid, model.site_pos, model.site_quat)
        return data.replace(
            qpos=data.qpos.at[number + 3 : number + 7].set(cube_quat),
            xanchor=jnp.concatenate([link_positions, cube[None, :3]]),
            xaxis=axes,
            xpos=xpos,
            xquat=xquat,
            xmat=_matrix(xquat),
            xipos=xipos,
            ximat=ximat,
            geom_xpos=geoms[0],
            geom_xmat=geoms[1],
            site_xpos=sites[0],
            site_xmat=sites[1],
        )

    def _links(self, angles: Array) -> tuple[Array, Array]:
        """Return rotations [joints, 4] and positions [joints, 3] of the links."""
        half = 0.5 * angles[:, None]
        local = jnp.concatenate([jnp.cos(half), jnp.sin(half) * self._axes], axis=1)
        quat = jax.lax.associative_scan(_multiply, local)
        before = jnp.concatenate([_IDENTITY, quat[:-1]])
        return quat, jnp.cumsum(_rotate(before, self._offsets), axis=0)


def _attached(
    xpos: Array, xquat: Array, body: np.ndarray, position: np.ndarray, rotation: np.ndarray
) -> tuple[Array, Array]:
    """Return positions and rotation matrices of frames fixed to bodies."""
    quat = xquat[body]
    return (
        xpos[body] + _rotate(quat, position.astype(np.float32)),
        _matrix(_multiply(quat, jnp.asarray(rotation, jnp.float32))),
    )


def _multiply(a: Array, b: Array) -> Array:
    """Return products of quaternions (w, x, y, z), [n, 4]."""
    w, u, v, t = a[:, :1], a[:, 1:], b[:, 1:], b[:, :1]
    real = w * t - jnp.sum(u * v, axis=1, keepdims=True)
    return jnp.concatenate([real, w * v + t * u + jnp.cross(u, v)], axis=1)


def relative_to(frame: Array, quat: Array) -> Array:
    """Return a rotation relative to a frame, [4]."""
    inverse = frame * np.array([1, -1, -1, -1], np.float32)
    return _multiply(inverse[None], quat[None])[0]


def _rotate(quat: Array, vector: Array | np.ndarray) -> Array:
    """Return vectors rotated by quaternions, [n, 3]."""
    w, u = quat[:, :1], quat[:, 1:]
    across = 2.0 * jnp.cross(u, vector)
    return jnp.asarray(vector) + w * across + jnp.cross(u, across)


def _matrix(quat: Array) -> Array:
    """Return rotation matrices, [n, 3, 3]."""
    columns = [_rotate(quat, np.tile(axis, (len(quat), 1))) for axis in np.eye(3, dtype=np.float32)]
    return jnp.stack(columns, axis=2)
