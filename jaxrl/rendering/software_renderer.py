"""Pictures of a model, drawn without a graphics driver: discs, thick lines and polygons.

Shapes are painted from far to near, over their shadows and a grid on the ground whose lines are
half a metre apart.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

from collections.abc import Sequence

import mujoco
import numpy as np
from PIL import Image, ImageDraw
from scipy.spatial import ConvexHull, QhullError

from jaxrl.rendering import geoms, primitives, scene
from jaxrl.rendering.camera import Camera, following, looking
from jaxrl.rendering.geoms import Bodies
from jaxrl.rendering.primitives import Body, Shape

_FINER = 2  # pictures are painted larger by this much, and shrunk, which makes edges smooth
_ASIDE = 0.8  # how far away a second figure is shown, in heights of the figure
_GHOST = 0.5  # how visible a ghost is
_SKY, _GROUND = np.array([0.93, 0.95, 0.97]), np.array([0.86, 0.87, 0.88])
_LINES, _SHADOW = np.array([0.74, 0.76, 0.78]), np.array([0.68, 0.69, 0.71])
_REACH, _MESH = 7.0, 0.5  # how far lines on the ground go, how far apart they are, in metres
_NEAR, _FADED = 0.5, 11.0  # how far from the camera things begin to be seen, and lines cease to
_TOWARDS_LIGHT = np.array([-0.3, -0.45])  # in the picture
_SUN = np.array([-0.3, -0.5, 0.81])  # in the world, for flat faces
# A round part is three blobs: how large each is, how far towards the light, and how bright.
_BLOBS = ((1.0, 0.0, 0.72), (0.9, 0.16, 1.0), (0.5, 0.6, 1.1))
_RING = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
_CIRCLE = np.stack([np.cos(_RING), np.sin(_RING)], -1)


def frames(
    model: mujoco.MjModel,
    qpos: np.ndarray,
    beside: np.ndarray | None = None,
    *,
    size: tuple[int, int] = (480, 360),
    ghost: bool = False,
    moments: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Return a picture, uint8 [height, width, 3], of each pose [F, nq], or of some by number.

    Poses `beside` [F, nq] are shown next to them in grey, or where they are as a ghost.
    """
    if beside is not None and len(beside) != len(qpos):
        raise ValueError(f"{len(qpos)} poses, but {len(beside)} beside them")
    if not all(np.isfinite(poses).all() for poses in (qpos, beside) if poses is not None):
        raise ValueError("poses that are not finite cannot be drawn")
    other = None if beside is None else geoms.bodies(model, beside)
    where = geoms.bodies(model, qpos)
    return paint(model, where, other, size=size, ghost=ghost, moments=moments)


def paint(
    model: mujoco.MjModel,
    where: Bodies,
    beside: Bodies | None = None,
    *,
    size: tuple[int, int] = (480, 360),
    ghost: bool = False,
    moments: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Return the same of bodies that are somewhere already."""
    body = primitives.prepare(model)
    aside = 0.0 if beside is None or ghost else _ASIDE * height(body)
    seen, floor = scene.look(body, where)
    low = np.array([0.0, 0.0, floor])
    where = where._replace(place=where.place - low)
    beside = None if beside is None else beside._replace(place=beside.place - low)
    large = (_FINER * size[0], _FINER * size[1])
    if scene.is_figure(body):
        turn = where.turn[0, 1]
        heading = 2.0 * float(np.arctan2(turn[3], turn[0]))  # as `rotations.heading` means it
        cameras = following(where.place[:, 1], heading, height(body), large, aside)
    else:
        cameras = looking(seen._replace(aim=seen.aim - low), large)
    pictures = []
    for i in range(len(where.place)) if moments is None else moments:
        figure = primitives.placed(body, where, i)
        other = [] if beside is None else _greyed(primitives.placed(body, beside, i))
        other = [_moved(shape, aside * cameras[i].axes[0]) for shape in other]
        picture = _picture(cameras[i], figure, other, ghost)
        pictures.append(np.asarray(picture.reduce(_FINER)))
    return pictures


def side_by_side(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return one picture of several, from left to right."""
    return np.concatenate(pictures, axis=1)


def height(body: Body) -> float:
    """Return how high a figure reaches at rest."""
    return float(scene.at_rest(body)[1][2])


def _greyed(figure: list[Shape]) -> list[Shape]:
    """Return what moves without colour, the brighter parts still brighter."""
    moving = [s for s in figure if s.moves]
    return [s._replace(colour=np.full(3, 0.35 + 0.5 * float(s.colour.mean()))) for s in moving]


def _moved(shape: Shape, by: np.ndarray) -> Shape:
    return shape._replace(points=shape.points + by, order=shape.order + by)


def _picture(camera: Camera, figure: list[Shape], other: list[Shape], ghost: bool) -> Image.Image:
    picture = Image.new("RGB", camera.size, _ink(_SKY))
    draw = ImageDraw.Draw(picture)
    figure, other = (_in_front(camera, shown) for shown in (figure, other))
    draw.rectangle([0, camera.horizon, *camera.size], _ink(_GROUND))
    _draw_grid(draw, camera)
    for shape in figure if ghost else figure + other:
        _draw_shadow(draw, camera, shape)
    if not ghost:
        _draw_shapes(draw, camera, figure + other)
        return picture
    solid = picture.copy()
    _draw_shapes(ImageDraw.Draw(solid), camera, other)
    picture = Image.blend(picture, solid, _GHOST)
    _draw_shapes(ImageDraw.Draw(picture), camera, figure)
    return picture


def _in_front(camera: Camera, figure: list[Shape]) -> list[Shape]:
    """Leave out what is beside or behind the camera: a second figure may go anywhere."""
    return [s for s in figure if ((s.points - camera.eye) @ camera.axes[2]).min() > _NEAR]


def _draw_grid(draw: ImageDraw.ImageDraw, camera: Camera) -> None:
    """Draw lines on the ground that stay where they are, paler the farther away."""
    into = camera.axes[2]
    aim = camera.eye - into * camera.eye[2] / into[2]  # where it looks at the ground
    places, depth = camera.seen(np.round(aim / _MESH) * _MESH + _grid())
    pale = np.clip((depth.max(1) - _NEAR) / _FADED, 0.0, 1.0)
    for line, near, share in zip(places, depth.min(1), pale, strict=True):
        if near > _NEAR and share < 1.0:
            colour = _LINES + share * (_GROUND - _LINES)
            draw.line(line.ravel().tolist(), _ink(colour), width=_FINER)


def _grid() -> np.ndarray:
    """Return the two ends of short pieces of lines [N, 2, 3] along x and along y."""
    marks, cuts = np.arange(-_REACH, _REACH + _MESH, _MESH), np.arange(-_REACH, _REACH, 2 * _MESH)
    across, start = (part.ravel() for part in np.meshgrid(marks, cuts))
    nothing = np.zeros_like(start)
    a, b = (np.stack([start + end, across, nothing], -1) for end in (0.0, 2 * _MESH))
    along_x = np.stack([a, b], 1)
    return np.concatenate([along_x, along_x[..., [1, 0, 2]]])


def _draw_shadow(draw: ImageDraw.ImageDraw, camera: Camera, shape: Shape) -> None:
    """Draw what a shape covers of the ground, seen from straight above."""
    ring = shape.radius * np.concatenate([_CIRCLE, np.zeros((len(_CIRCLE), 1))], -1)
    points = (shape.points[:, None] + ring).reshape(-1, 3) * np.array([1.0, 1.0, 0.0])
    _fill_hull(draw, camera.seen(points)[0], _SHADOW)


def _draw_shapes(draw: ImageDraw.ImageDraw, camera: Camera, figure: list[Shape]) -> None:
    def depth(shape: Shape) -> tuple[bool, float]:
        # Of those just as deep, rods (which have two places) come before the parts they join.
        far = float(camera.seen(shape.order)[1].max())
        return not shape.moves, far + 1e-6 * len(shape.order)

    for shape in sorted(figure, key=depth, reverse=True):
        if shape.radius:
            _draw_round(draw, camera, shape)
        elif shape.faces:
            _draw_box(draw, camera, shape)
        else:
            _fill_hull(draw, camera.seen(shape.points)[0], shape.colour)


def _draw_round(draw: ImageDraw.ImageDraw, camera: Camera, shape: Shape) -> None:
    centres, depth = camera.seen(shape.points)
    radii = (camera.focal * shape.radius / depth)[:, None, None]
    for size, towards, light in _BLOBS:
        rim = centres[:, None] + radii * (size * _CIRCLE + towards * (1 - size) * _TOWARDS_LIGHT)
        _fill_hull(draw, rim.reshape(-1, 2), light * shape.colour)


def _draw_box(draw: ImageDraw.ImageDraw, camera: Camera, shape: Shape) -> None:
    centre = shape.points.mean(0)
    for face in shape.faces:
        corners = shape.points[list(face)]
        normal = corners.mean(0) - centre
        if normal @ (corners.mean(0) - camera.eye) < 0:  # it faces the camera
            light = 0.85 + 0.3 * float(normal @ _SUN) / float(np.linalg.norm(normal))
            _fill(draw, camera.seen(corners)[0], light * shape.colour)


def _fill_hull(draw: ImageDraw.ImageDraw, points: np.ndarray, colour: np.ndarray) -> None:
    try:
        corners = ConvexHull(points).vertices  # in order
    except QhullError:
        return  # all in one line: seen from its edge, a flat thing covers nothing
    _fill(draw, points[corners], colour)


def _fill(draw: ImageDraw.ImageDraw, corners: np.ndarray, colour: np.ndarray) -> None:
    draw.polygon(corners.ravel().tolist(), _ink(colour))


def _ink(colour: np.ndarray) -> tuple[int, int, int]:
    r, g, b = (int(round(255 * min(max(float(c), 0.0), 1.0))) for c in colour)
    return r, g, b
