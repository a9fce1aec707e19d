"""The parts of a model as simple shapes in the world: what a picture of it is made of."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

from collections.abc import Iterator
from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.rendering import geoms
from jaxrl.rendering.geoms import Bodies, Part

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
    moves: bool = True  # what does not is painted first


class Body(NamedTuple):
    """A model's parts, prepared for being placed in any pose."""

    model: mujoco.MjModel
    parts: tuple[tuple[Part, Shape], ...]  # each shape in its own frame
    joins: tuple[tuple[int, int, int], ...]  # a part, the body it leads to, and a part of that


def prepare(model: mujoco.MjModel) -> Body:
    """Return what of a model is drawn: its parts, and what joins those that move."""
    seen = geoms.of(model)
    first = {part.body: i for i, part in reversed(list(enumerate(seen))) if part.moves}
    joins = tuple(
        (first[int(model.body_parentid[body])], body, i)
        for body, i in sorted(first.items())
        if int(model.body_parentid[body]) in first
    )
    return Body(model, tuple((part, _shape(model, part)) for part in seen), joins)


def placed(body: Body, where: Bodies, moment: int = 0) -> list[Shape]:
    """Return the shapes in the world, of one of several poses."""
    place, turn = where.place[moment], where.turn[moment]
    turned = Rotation.from_quat(turn, scalar_first=True).as_matrix()
    shown = []
    for part, shape in body.parts:
        own = Rotation.from_quat(part.turn, scalar_first=True).as_matrix()
        centre = place[part.body] + turned[part.body] @ part.place
        points = centre + shape.points @ (turned[part.body] @ own).T
        shown.append(shape._replace(points=points, order=centre[None]))
    return [*_joins(body, shown, place), *shown]


def extent(shapes: list[Shape]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest corner [3] of a box around some shapes."""
    low = np.min([shape.points.min(0) - shape.radius for shape in shapes], axis=0)
    return low, np.max([shape.points.max(0) + shape.radius for shape in shapes], axis=0)


def _joins(body: Body, shown: list[Shape], place: np.ndarray) -> Iterator[Shape]:
    """Return rods from part to joint and on to the next part, so that no limb hangs in the air.

    They are painted before both parts, and seen only between them.
    """
    for before, joint, after in body.joins:
        radius = _BONE * _thickness(body.parts[after][0])
        ends = np.concatenate([shown[before].order, shown[after].order])
        for centre in ends:
            points = np.stack([centre, place[joint]])
            yield Shape(points, radius, (), 0.85 * shown[after].colour, ends)


def _thickness(part: Part) -> float:
    """Return half of a part's smallest extent."""
    return float(part.size[part.size > 0].min())  # round parts have fewer than three numbers


def _shape(model: mujoco.MjModel, part: Part) -> Shape:
    """Return a part in its own frame."""
    kinds = mujoco.mjtGeom
    size, colour = part.size, part.colour[:3]
    here, moves = np.zeros((1, 3)), part.moves
    if part.kind == kinds.mjGEOM_SPHERE:
        return Shape(here, size[0], (), colour, here, moves)
    if part.kind == kinds.mjGEOM_CAPSULE:
        ends = np.array([[0, 0, -size[1]], [0, 0, size[1]]])
        return Shape(ends, size[0], (), colour, here, moves)
    if part.kind == kinds.mjGEOM_BOX:
        return Shape(_SIGNS * size, 0.0, _FACES, colour, here, moves)
    return Shape(_outline(model, part), 0.0, (), colour, here, moves)


def _outline(model: mujoco.MjModel, part: Part) -> np.ndarray:
    """Return points on the hull of a cylinder, mesh or ellipsoid."""
    size = part.size
    if part.kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        ring = size[0] * np.stack([np.cos(_RING), np.sin(_RING), 0 * _RING], -1)
        return np.concatenate([ring + [0, 0, size[1]], ring - [0, 0, size[1]]])
    towards = _directions(96)
    if part.kind == mujoco.mjtGeom.mjGEOM_MESH:
        start = model.mesh_vertadr[part.mesh]
        corners = model.mesh_vert[start : start + model.mesh_vertnum[part.mesh]]
        return corners[np.unique(np.argmax(corners @ towards.T, axis=0))].astype(float)
    return towards * size


def _directions(count: int) -> np.ndarray:
    """Return directions spread evenly, along a spiral from pole to pole."""
    height = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    angle = np.pi * (1.0 + 5.0**0.5) * np.arange(count)
    across = np.sqrt(1.0 - height**2)
    return np.stack([across * np.cos(angle), across * np.sin(angle), height], -1)
