"""The geoms of a model as convex shapes in the world, which the software renderer draws."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

from collections.abc import Iterator
from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial import ConvexHull, QhullError
from scipy.spatial.transform import Rotation

from jaxrl.rendering import geoms
from jaxrl.rendering.geoms import BodyPoses, Geom

_ROD = 0.6  # radius of a rod, in half thicknesses of the geom that it leads to
_CORNERS = 24  # of a circle
_RING = np.linspace(0.0, 2.0 * np.pi, _CORNERS, endpoint=False)
# The corners of a box by number: the signs of x, y and z are the bits 4, 2 and 1.
_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
_BOX_FACES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))
_NEXT = (*range(1, _CORNERS), 0)
# Both ends of a cylinder, whose corners are two rings, and its sides.
_CYLINDER_FACES = (
    tuple(range(_CORNERS)),
    tuple(range(_CORNERS, 2 * _CORNERS)),
    *((i, j, _CORNERS + j, _CORNERS + i) for i, j in enumerate(_NEXT)),
)


class Shape(NamedTuple):
    """All points within `radius` of the hull of some points."""

    points: np.ndarray  # [P, 3]
    radius: float
    faces: tuple[tuple[int, ...], ...]  # the numbers of their corners; none of round shapes
    colour: np.ndarray  # [3], from 0 to 1
    order: np.ndarray  # [N, 3]; shapes are painted by the depth of the farthest of these
    moves: bool = True  # fixed shapes are painted first


class ModelShapes(NamedTuple):
    """The shapes of a model, each in the frame of its geom."""

    model: mujoco.MjModel
    geoms: tuple[tuple[Geom, Shape], ...]
    rods: tuple[tuple[int, int, int], ...]  # a geom, the body it leads to, a geom of that body


def model_shapes(model: mujoco.MjModel) -> ModelShapes:
    """Return the shapes of a model, and the rods that join those that move."""
    visible = geoms.visible_geoms(model)
    first = {geom.body: i for i, geom in reversed(list(enumerate(visible))) if geom.moves}
    rods = tuple(
        (first[int(model.body_parentid[body])], body, i)
        for body, i in sorted(first.items())
        if int(model.body_parentid[body]) in first
    )
    return ModelShapes(model, tuple((geom, _shape(model, geom)) for geom in visible), rods)


def place_shapes(shapes: ModelShapes, poses: BodyPoses, frame: int = 0) -> list[Shape]:
    """Return the shapes in world coordinates, in one frame."""
    pos, quat = poses.pos[frame], poses.quat[frame]
    rotation = Rotation.from_quat(quat, scalar_first=True).as_matrix()
    placed = []
    for geom, shape in shapes.geoms:
        local = Rotation.from_quat(geom.quat, scalar_first=True).as_matrix()
        center = pos[geom.body] + rotation[geom.body] @ geom.pos
        points = center + shape.points @ (rotation[geom.body] @ local).T
        placed.append(shape._replace(points=points, order=center[None]))
    return [*_rods(shapes, placed, pos), *placed]


def bounding_box(shapes: list[Shape]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest corner [3] of the box around some shapes."""
    low = np.min([shape.points.min(0) - shape.radius for shape in shapes], axis=0)
    return low, np.max([shape.points.max(0) + shape.radius for shape in shapes], axis=0)


def _rods(shapes: ModelShapes, placed: list[Shape], pos: np.ndarray) -> Iterator[Shape]:
    """Yield rods from geom to joint and on to the next geom, so that no limb hangs in the air.

    They are painted before both geoms, and visible only between them.
    """
    for before, joint, after in shapes.rods:
        radius = _ROD * _thickness(shapes.geoms[after][0])
        ends = np.concatenate([placed[before].order, placed[after].order])
        for center in ends:
            points = np.stack([center, pos[joint]])
            yield Shape(points, radius, (), 0.85 * placed[after].colour, ends)


def _thickness(geom: Geom) -> float:
    """Return half of a geom's smallest extent."""
    return float(geom.size[geom.size > 0].min())  # round geoms have fewer than three sizes


def _shape(model: mujoco.MjModel, geom: Geom) -> Shape:
    """Return the shape of a geom in its own frame."""
    kinds = mujoco.mjtGeom
    size, colour = geom.size, geom.colour[:3]
    here, moves = np.zeros((1, 3)), geom.moves
    if geom.kind == kinds.mjGEOM_SPHERE:
        return Shape(here, size[0], (), colour, here, moves)
    if geom.kind == kinds.mjGEOM_CAPSULE:
        ends = np.array([[0, 0, -size[1]], [0, 0, size[1]]])
        return Shape(ends, size[0], (), colour, here, moves)
    if geom.kind == kinds.mjGEOM_BOX:
        return Shape(_SIGNS * size, 0.0, _BOX_FACES, colour, here, moves)
    if geom.kind == kinds.mjGEOM_CYLINDER:
        ring = size[0] * np.stack([np.cos(_RING), np.sin(_RING), 0 * _RING], -1)
        points = np.concatenate([ring + [0, 0, size[1]], ring - [0, 0, size[1]]])
        return Shape(points, 0.0, _CYLINDER_FACES, colour, here, moves)
    points = _hull(model, geom)
    try:
        faces = tuple(map(tuple, ConvexHull(points).simplices.tolist()))
    except QhullError:  # it is flat, and drawn as its outline
        faces = ()
    return Shape(points, 0.0, faces, colour, here, moves)


def _hull(model: mujoco.MjModel, geom: Geom) -> np.ndarray:
    """Return points on the hull of a mesh or ellipsoid."""
    towards = _directions(96)
    if geom.kind == mujoco.mjtGeom.mjGEOM_MESH:
        start = model.mesh_vertadr[geom.mesh]
        corners = model.mesh_vert[start : start + model.mesh_vertnum[geom.mesh]]
        return corners[np.unique(np.argmax(corners @ towards.T, axis=0))].astype(float)
    return towards * geom.size


def _directions(count: int) -> np.ndarray:
    """Return directions spread evenly, along a spiral from pole to pole."""
    height = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    angle = np.pi * (1.0 + 5.0**0.5) * np.arange(count)
    across = np.sqrt(1.0 - height**2)
    return np.stack([across * np.cos(angle), across * np.sin(angle), height], -1)
