"""The parts of a model as simple shapes in the world: what a drawing of it is made of."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

from collections.abc import Iterator
from typing import NamedTuple

import mujoco
import numpy as np

_SHOWN = 3  # groups of parts from here on are for collisions or hidden
_BONE = 0.6  # how thick what joins two parts is, of the thinner direction of the part it leads to
_RING = np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)
# The corners of a box by number: the signs of x, y and z are the bits 4, 2 and 1.
_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
_FACES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))


class Shape(NamedTuple):
    """All points within `radius` of the hull of some points."""

    points: np.ndarray  # [P, 3]
    radius: float
    faces: tuple[tuple[int, ...], ...]  # of a box, the numbers of its corners
    colour: np.ndarray  # [3], from 0 to 1
    order: np.ndarray  # [N, 3]; the farthest of these says when it is painted


class Body(NamedTuple):
    """A model's parts, prepared for being placed in any pose."""

    model: mujoco.MjModel
    data: mujoco.MjData
    parts: tuple[tuple[int, Shape], ...]  # by part's number, each in its own frame
    joins: tuple[tuple[int, int, int], ...]  # a part, the body it leads to, and a part of that


def prepare(model: mujoco.MjModel) -> Body:
    """Return what of a model is drawn: its moving parts, and what joins them."""
    moving = [i for i in range(model.ngeom) if model.body_weldid[model.geom_bodyid[i]] != 0]
    shown = [i for i in moving if model.geom_group[i] < _SHOWN and model.geom_rgba[i, 3] > 0]
    parts = shown or moving
    first = {int(model.geom_bodyid[i]): i for i in reversed(parts)}
    joins = tuple(
        (first[int(model.body_parentid[body])], body, part)
        for body, part in sorted(first.items())
        if int(model.body_parentid[body]) in first
    )
    return Body(model, mujoco.MjData(model), tuple((i, _shape(model, i)) for i in parts), joins)


def placed(body: Body, pose: np.ndarray) -> list[Shape]:
    """Return the shapes of a pose [nq] in the world."""
    body.data.qpos[:] = pose
    mujoco.mj_kinematics(body.model, body.data)
    centre, turn = body.data.geom_xpos, body.data.geom_xmat.reshape(-1, 3, 3)
    parts = {
        i: shape._replace(points=centre[i] + shape.points @ turn[i].T, order=centre[[i]])
        for i, shape in body.parts
    }
    return [*_joins(body, parts), *parts.values()]


def _joins(body: Body, parts: dict[int, Shape]) -> Iterator[Shape]:
    """Return rods from part to joint and on to the next part, so that no limb hangs in the air.

    They are painted before both parts, and seen only between them.
    """
    centre = body.data.geom_xpos
    for before, joint, after in body.joins:
        radius = _BONE * _thickness(body.model, after)
        for part in (before, after):
            points = np.stack([centre[part], body.data.xpos[joint]])
            yield Shape(points, radius, (), 0.85 * parts[after].colour, centre[[before, after]])


def _thickness(model: mujoco.MjModel, geom: int) -> float:
    """Return half of a part's smallest extent."""
    size = model.geom_size[geom]
    return float(size[size > 0].min())  # round parts have fewer than three numbers


def _shape(model: mujoco.MjModel, geom: int) -> Shape:
    """Return a part in its own frame."""
    kinds = mujoco.mjtGeom
    kind, size = model.geom_type[geom], model.geom_size[geom]
    material = model.geom_matid[geom]
    colour = (model.geom_rgba[geom] if material < 0 else model.mat_rgba[material])[:3].copy()
    here = np.zeros((1, 3))
    if kind == kinds.mjGEOM_SPHERE:
        return Shape(here, size[0], (), colour, here)
    if kind == kinds.mjGEOM_CAPSULE:
        return Shape(np.array([[0, 0, -size[1]], [0, 0, size[1]]]), size[0], (), colour, here)
    if kind == kinds.mjGEOM_BOX:
        return Shape(_SIGNS * size, 0.0, _FACES, colour, here)
    return Shape(_outline(model, geom), 0.0, (), colour, here)


def _outline(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return points on the hull of a cylinder, mesh or ellipsoid."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        ring = size[0] * np.stack([np.cos(_RING), np.sin(_RING), 0 * _RING], -1)
        return np.concatenate([ring + [0, 0, size[1]], ring - [0, 0, size[1]]])
    towards = _directions(96)
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start = model.mesh_vertadr[mesh]
        corners = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
        return corners[np.unique(np.argmax(corners @ towards.T, axis=0))].astype(float)
    return towards * size


def _directions(count: int) -> np.ndarray:
    """Return directions spread evenly, along a spiral from pole to pole."""
    height = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    angle = np.pi * (1.0 + 5.0**0.5) * np.arange(count)
    across = np.sqrt(1.0 - height**2)
    return np.stack([across * np.cos(angle), across * np.sin(angle), height], -1)
