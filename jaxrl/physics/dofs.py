"""Motions of degrees of freedom, for all of a model at once.

MJX computes them for each level of the kinematic tree and each type of joint, and joins the parts.
XLA makes kernels of thousands of lines of that. Here constant tables say which degree of freedom
turns about which axis, and which ones move a body before it.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx

from jaxrl.physics import spatial
from jaxrl.types import Array

_FREE, _BALL, _SLIDE = mjx.JointType.FREE, mjx.JointType.BALL, mjx.JointType.SLIDE


def motions(m: mjx.Model, d: mjx.Data) -> Array:
    """Return `cdof`, the motion per unit of velocity about the centre of mass of the tree: (v, 6).

    A rotation is its axis and the velocity that it gives to that point; a translation is its axis.
    """
    joint, body, number = _joints(m)
    kind = np.asarray(m.jnt_type)[joint]
    slides = (kind == _SLIDE) | ((kind == _FREE) & (number < 3))
    # Axes of joints, those of bodies that turn freely, and those of the world.
    turned = np.unique(body[(kind == _BALL) | (kind == _FREE)])
    of_bodies = jnp.swapaxes(d.xmat[turned], -1, -2).reshape(-1, 3)
    table = jnp.concatenate([d.xaxis, of_bodies, jnp.eye(3, dtype=d.xaxis.dtype)])
    bodies = len(m.jnt_type) + 3 * np.searchsorted(turned, body)
    world = len(m.jnt_type) + 3 * len(turned)
    row = np.where(kind == _BALL, bodies + number, joint)
    row = np.where(kind == _FREE, np.where(slides, world + number, bodies + number - 3), row)
    axis = table[row]
    offset = d.subtree_com[np.asarray(m.body_rootid)[body]] - d.xanchor[joint]
    slides = slides[:, None]
    linear = jnp.where(slides, axis, spatial.cross(axis, offset))
    return jnp.concatenate([jnp.where(slides, 0.0, axis), linear], axis=1)


def motion_rates(m: mjx.Model, d: mjx.Data) -> Array:
    """Return `cdof_dot`, how `cdof` changes as the bodies that carry the axes move: (v, 6)."""
    joint, body, number = _joints(m)
    free = np.asarray(m.jnt_type)[joint] == _FREE
    velocities = d.cdof * d.qvel[:, None]
    # What moves an axis: the parent of its body, and the joints of the body that come before. The
    # rotation of a free joint comes after its translation.
    carried = d.cvel[np.asarray(m.body_parentid)[body]]
    before = (body[:, None] == body) & (joint[:, None] > joint)
    before |= (joint[:, None] == joint) & (free & (number >= 3))[:, None] & (number < 3)
    for back in range(1, m.nv):
        moves = np.zeros((m.nv, 1), np.float32)
        moves[back:, 0] = before.diagonal(-back)
        if moves.any():
            carried += moves * velocities[np.maximum(np.arange(m.nv) - back, 0)]
    return jax.vmap(spatial.motion_cross)(carried, d.cdof)


def _joints(m: mjx.Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the joint and the body of each degree of freedom, and its number within the joint."""
    joint, body = np.asarray(m.dof_jntid), np.asarray(m.dof_bodyid)
    return joint, body, np.arange(m.nv) - np.asarray(m.jnt_dofadr)[joint]
