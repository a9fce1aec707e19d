"""Rows of constraints for limits of joints, and for contacts without friction or with pyramids.

MJX multiplies a small matrix for each contact of each environment, and scatters limits into rows of
zeros: kernels of their own. Here everything is elementwise. Barriers keep XLA from computing the
directions of a contact again for each of its rows.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx
from mujoco.mjx._src.constraint import _Efc

from jaxrl.physics import generalized
from jaxrl.types import Array


def limits(m: mjx.Model, d: mjx.Data) -> _Efc | None:
    """Return the rows of limited slides and hinges; None where there are none."""
    kinds = (mjx.JointType.SLIDE, mjx.JointType.HINGE)
    (chosen,) = np.nonzero(np.isin(m.jnt_type, kinds) & np.asarray(m.jnt_limited, bool))
    if m.opt.disableflags & mjx.DisableBit.LIMIT or not chosen.size:
        return None
    dofs = np.asarray(m.jnt_dofadr)[chosen]
    position = d.qpos[np.asarray(m.jnt_qposadr)[chosen]]
    margin = m.jnt_margin[chosen]
    above = position - m.jnt_range[chosen, 0]
    below = m.jnt_range[chosen, 1] - position
    distance = jnp.minimum(above, below) - margin
    active = distance < 0
    direction = jnp.where(above < below, 1.0, -1.0) * active
    own = np.arange(m.nv)[None, :] == dofs[:, None]
    return _Efc(
        jnp.where(own, direction[:, None], 0.0),
        distance * active,
        distance,
        m.dof_invweight0[dofs],
        m.jnt_solref[chosen],
        m.jnt_solimp[chosen],
        margin,
        jnp.zeros_like(distance),
    )


def frictionless(m: mjx.Model, d: mjx.Data) -> _Efc | None:
    """Return the rows of all contacts without friction; None where there are none."""
    contact = _contacts(d, 1)
    if contact is None:
        return None
    return _rows(contact, _along_frame(m, d, contact, 1), _inverse_weight(m, contact))


def pyramids(m: mjx.Model, d: mjx.Data, condim: int) -> _Efc | None:
    """Return the rows of all contacts with `condim` dimensions; None where there are none."""
    contact = _contacts(d, condim)
    if contact is None:
        return None
    # Two edges of the pyramid for each direction of friction.
    directions = _along_frame(m, d, contact, condim)
    friction = contact.friction[:, : condim - 1, None] * np.asarray([1.0, -1.0], np.float32)
    edges = directions[:, :1, None] + directions[:, 1:, None] * friction[..., None]
    edges = edges.reshape(len(edges), -1, m.nv)
    # All edges of a pyramid have the same inverse weight.
    slip = contact.friction[:, 0] ** 2
    inverse = _inverse_weight(m, contact)
    inverse = (inverse + slip * inverse) * 2 * slip / m.opt.impratio
    return _rows(contact, edges, inverse)


def _contacts(d: mjx.Data, condim: int) -> mjx.Contact | None:
    (chosen,) = np.nonzero(d._impl.contact.dim == condim)
    return jax.tree.map(lambda x: x[chosen], d._impl.contact) if chosen.size else None


def _rows(contact: mjx.Contact, jacobian: Array, inverse_weight: Array) -> _Efc:
    """Return the rows of a Jacobian (contacts, rows of each, v)."""
    distance = contact.dist - contact.includemargin
    active = distance < 0
    values = (
        *(distance * active, distance, inverse_weight, contact.solref, contact.solimp),
        *(contact.includemargin, jnp.zeros_like(distance)),
    )
    return _Efc(
        jacobian.reshape(-1, jacobian.shape[-1]),
        *(jnp.repeat(value, jacobian.shape[1], axis=0) for value in values),
    )


def _inverse_weight(m: mjx.Model, contact: mjx.Contact) -> Array:
    first, second = _bodies(m, contact)
    return m.body_invweight0[first, 0] + m.body_invweight0[second, 0]


def _bodies(m: mjx.Model, contact: mjx.Contact) -> tuple[Array, Array]:
    bodies = jnp.asarray(m.geom_bodyid)[contact.geom]
    return bodies[:, 0], bodies[:, 1]


def _along_frame(m: mjx.Model, d: mjx.Data, contact: mjx.Contact, condim: int) -> Array:
    """Return how fast the bodies move apart along each direction: (contacts, directions, v).

    By virtual work this is what a unit force, or torque, along the direction does to them. It is 0
    where they do not touch.
    """
    first, second = _bodies(m, contact)
    moves = jnp.asarray(generalized.moved_by(m))
    apart = jax.lax.optimization_barrier(moves[second] - moves[first])
    touch = contact.dist < contact.includemargin
    slides = min(condim, 3)
    nothing = jnp.zeros_like(contact.frame)
    forces = jnp.concatenate([contact.frame[:, :slides], nothing[:, : condim - slides]], axis=1)
    torques = jnp.concatenate([nothing[:, :slides], contact.frame[:, : condim - slides]], axis=1)
    along = generalized.project(m, d, contact.pos[:, None], forces, torques)
    return jax.lax.optimization_barrier(apart[:, None] * along * touch[:, None, None])
