"""Where the bodies of an arm are, without walking along it joint by joint.

MJX goes down a chain one body after the other. XLA merges such walks into one piece that computes
every body's ancestors anew for every number it needs: on processors seven joints take a thousand
times as long as they should. Here the rotations are multiplied in pairs, pairs of pairs, and so on.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from jaxrl.types import Array

_UNTURNED = np.array([[1, 0, 0, 0]], np.float32)


class Chain:
    """Hinges in a row, each at the origin of its body; then a free body, then bodies at rest."""

    def __init__(self, model: mujoco.MjModel):
        hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
        self.number = number = int(np.sum(hinges))
        in_order = np.array_equal(model.body_parentid[1 : number + 1], np.arange(number))
        aligned = np.all(model.body_quat == [1, 0, 0, 0]) and not np.any(model.jnt_pos)
        if not (np.all(hinges[:number]) and len(hinges) == number + 1 and in_order and aligned):
            raise ValueError("not a row of hinges and a free body, with frames alike at rest")
        self._model = model
        self._axes = model.jnt_axis[:number].astype(np.float32)
        self._offsets = model.body_pos[1 : number + 1].astype(np.float32)

    def placed(self, data: mjx.Data) -> mjx.Data:
        """Fill in what `mjx.kinematics` would: places and rotations of bodies, geoms and sites."""
        model, number = self._model, self.number
        links, link_places = self._links(data.qpos[:number])
        cube = data.qpos[number:]
        turned = cube[3:7] / jnp.linalg.norm(cube[3:7])
        rest = np.tile(_UNTURNED, (model.nbody - number - 2, 1))
        xquat = jnp.concatenate([_UNTURNED, links, turned[None], rest])
        ends = model.body_pos[number + 2 :].astype(np.float32)
        xpos = jnp.concatenate([np.zeros((1, 3), np.float32), link_places, cube[None, :3], ends])
        axes = jnp.concatenate([_rotate(links, self._axes), np.eye(3, dtype=np.float32)[2:]])
        bodies = np.arange(model.nbody)
        xipos, ximat = _attached(xpos, xquat, bodies, model.body_ipos, model.body_iquat)
        geoms = _attached(xpos, xquat, model.geom_bodyid, model.geom_pos, model.geom_quat)
        sites = _attached(xpos, xquat, model.site_bodyid, model.site_pos, model.site_quat)
        return data.replace(
            qpos=data.qpos.at[number + 3 : number + 7].set(turned),
            xanchor=jnp.concatenate([link_places, cube[None, :3]]),
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
        """Return rotations [joints, 4] and places [joints, 3] of the links."""
        half = 0.5 * angles[:, None]
        own = jnp.concatenate([jnp.cos(half), jnp.sin(half) * self._axes], axis=1)
        turned = jax.lax.associative_scan(_multiply, own)
        before = jnp.concatenate([_UNTURNED, turned[:-1]])
        return turned, jnp.cumsum(_rotate(before, self._offsets), axis=0)


def _attached(
    xpos: Array, xquat: Array, body: np.ndarray, place: np.ndarray, rotation: np.ndarray
) -> tuple[Array, Array]:
    """Return places and matrices of what is fixed to bodies."""
    quat = xquat[body]
    return (
        xpos[body] + _rotate(quat, place.astype(np.float32)),
        _matrix(_multiply(quat, jnp.asarray(rotation, jnp.float32))),
    )


def _multiply(a: Array, b: Array) -> Array:
    """Return products of quaternions (w, x, y, z), [n, 4]."""
    w, u, v, t = a[:, :1], a[:, 1:], b[:, 1:], b[:, :1]
    real = w * t - jnp.sum(u * v, axis=1, keepdims=True)
    return jnp.concatenate([real, w * v + t * u + jnp.cross(u, v)], axis=1)


def seen_from(frame: Array, quat: Array) -> Array:
    """Return a rotation as seen from a frame that is turned itself, [4]."""
    back = frame * np.array([1, -1, -1, -1], np.float32)
    return _multiply(back[None], quat[None])[0]


def _rotate(quat: Array, vector: Array | np.ndarray) -> Array:
    """Return vectors turned by quaternions, [n, 3]."""
    w, u = quat[:, :1], quat[:, 1:]
    across = 2.0 * jnp.cross(u, vector)
    return jnp.asarray(vector) + w * across + jnp.cross(u, across)


def _matrix(quat: Array) -> Array:
    """Return rotation matrices, [n, 3, 3]."""
    columns = [_rotate(quat, np.tile(axis, (len(quat), 1))) for axis in np.eye(3, dtype=np.float32)]
    return jnp.stack(columns, axis=2)
