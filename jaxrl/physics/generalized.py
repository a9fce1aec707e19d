"""Forces on bodies as forces on degrees of freedom.

MJX makes the Jacobian of every body at every point, and multiplies it by the force. Here a force
becomes a wrench about the point that `cdof` refers to, once, and is then projected on each degree
of freedom: six products. The barriers keep XLA from computing a wrench again for each of them.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx

from jaxrl.physics import spatial
from jaxrl.types import Array


def project(m: mjx.Model, d: mjx.Data, points: Array, forces: Array, torques: Array) -> Array:
    """Return what forces at points, and torques, do to each degree of freedom: (..., v).

    Of a degree of freedom only bodies that it moves can be pushed: see `moved_by`.
    """
    # `cdof` is relative to the centre of mass of the kinematic tree.
    tree_of_dof = np.asarray(m.body_rootid)[np.asarray(m.dof_bodyid)]
    trees, tree = np.unique(tree_of_dof, return_inverse=True)
    offsets = points[..., None, :] - d.subtree_com[trees]  # (..., trees, 3)
    forces = forces[..., None, :]
    turning = spatial.cross(offsets, forces) + torques[..., None, :]
    turning, forces = jax.lax.optimization_barrier((turning, forces))
    turning = turning if len(trees) == 1 else turning[..., tree, :]
    work = [turning[..., i] * d.cdof[:, i] + forces[..., i] * d.cdof[:, 3 + i] for i in range(3)]
    return work[0] + work[1] + work[2]


def moved_by(m: mjx.Model) -> np.ndarray:
    """Return 1 where a degree of freedom moves a body, else 0: (bodies, v)."""
    moves = np.zeros((m.nbody, m.nv), np.float32)
    for body in range(1, m.nbody):  # parents come first
        moves[body] = moves[m.body_parentid[body]]
        moves[body, np.asarray(m.dof_bodyid) == body] = 1.0
    return moves


def applied(m: mjx.Model, d: mjx.Data) -> Array:
    """Return `xfrc_applied`, forces on the centres of bodies, as forces on degrees of freedom."""
    forces, torques = d.xfrc_applied[:, :3], d.xfrc_applied[:, 3:]
    return jnp.sum(moved_by(m) * project(m, d, d.xipos, forces, torques), axis=0)
