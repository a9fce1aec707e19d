"""Rows of constraints for contacts with pyramidal friction cones.

MJX multiplies a small matrix for each contact of each environment: batches of such products are
kernels of their own, which read and write the Jacobians of both bodies. Here everything is
elementwise, so that XLA can compute the rows in the kernels that write them.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import jax
import jax.numpy as jnp
import numpy as np
from mujoco import mjx
from mujoco.mjx._src.constraint import _Efc

from jaxrl.types import Array


def pyramids(m: mjx.Model, d: mjx.Data, condim: int) -> _Efc | None:
    """Return the rows of all contacts with `condim` dimensions; None where there are none."""
    (chosen,) = np.nonzero(d._impl.contact.dim == condim)
    if not chosen.size:
        return None
    contact = jax.tree.map(lambda x: x[chosen], d._impl.contact)
    bodies = jnp.asarray(m.geom_bodyid)[contact.geom]
    distance = contact.dist - contact.includemargin
    active = distance < 0

    directions = _along_frame(m, d, contact, bodies, condim)
    # Two edges of the pyramid for each direction of friction.
    signs = np.asarray([1.0, -1.0] * (condim - 1), np.float32)
    friction = jnp.repeat(contact.friction[:, : condim - 1], 2, axis=1) * signs[None]
    edges = [
        directions[0] + directions[1 + i // 2] * friction[:, i, None]
        for i in range(2 * (condim - 1))
    ]
    jacobian = jnp.stack(edges, axis=1) * active[:, None, None]

    # All edges of a pyramid have the same inverse weight.
    slip = contact.friction[:, 0] ** 2
    inverse = m.body_invweight0[bodies[:, 0], 0] + m.body_invweight0[bodies[:, 1], 0]
    inverse = (inverse + slip * inverse) * 2 * slip / m.opt.impratio
    rows = _Efc(
        jacobian,
        *(
            jnp.repeat(value[:, None], len(edges), axis=1)
            for value in (
                *(distance * active, distance, inverse, contact.solref, contact.solimp),
                *(contact.includemargin, jnp.zeros_like(distance)),
            )
        ),
    )
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


def _along_frame(
    m: mjx.Model, d: mjx.Data, contact: mjx.Contact, bodies: Array, condim: int
) -> list[Array]:
    """Return how fast the bodies move apart along each direction, for each degree of freedom."""
    moves = jnp.asarray(_moved_by(m))[bodies]  # (contacts, 2, v)
    roots = jnp.asarray(m.body_rootid)[bodies]
    offsets = contact.pos[:, None] - d.subtree_com[roots]  # (contacts, 2, 3)
    sign = moves[:, 1] - moves[:, 0]
    x, y, z = (
        moves[:, 1] * offsets[:, 1, i, None] - moves[:, 0] * offsets[:, 0, i, None]
        for i in range(3)
    )
    turn = [d.cdof[None, :, i] for i in range(3)]
    slide = [d.cdof[None, :, 3 + i] * sign for i in range(3)]
    velocity = (
        slide[0] + turn[1] * z - turn[2] * y,
        slide[1] + turn[2] * x - turn[0] * z,
        slide[2] + turn[0] * y - turn[1] * x,
    )
    spin = [each * sign for each in turn]

    def along(k: int, vector: list[Array] | tuple[Array, ...]) -> Array:
        return sum(contact.frame[:, k, i, None] * vector[i] for i in range(3))  # type: ignore[return-value]

    return [along(k, velocity) if k < 3 else along(k - 3, spin) for k in range(condim)]


def _moved_by(m: mjx.Model) -> np.ndarray:
    """Return 1 where a degree of freedom moves a body, else 0."""
    moves = np.zeros((m.nbody, m.nv), np.float32)
    for body in range(1, m.nbody):  # parents come first
        moves[body] = moves[m.body_parentid[body]]
        moves[body, np.asarray(m.dof_bodyid) == body] = 1.0
    return moves
