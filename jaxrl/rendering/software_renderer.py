"""Images of a model, drawn without a graphics driver: discs, thick lines and polygons.

Shapes are painted from far to near, over their shadows and a ground grid of half a metre.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

from collections.abc import Sequence

import mujoco
import numpy as np
from PIL import Image, ImageDraw
from scipy.spatial import ConvexHull, QhullError

from jaxrl.rendering import geoms, primitives, scene
from jaxrl.rendering.camera import Camera, fixed_cameras, tracking_cameras
from jaxrl.rendering.geoms import BodyPoses
from jaxrl.rendering.primitives import ModelShapes, Shape

_SUPERSAMPLING = 2
_OFFSET = 0.8  # distance to a second figure, in heights of the figure
_GHOST = 0.5  # opacity of a ghost
_SKY, _GROUND = np.array([0.93, 0.95, 0.97]), np.array([0.86, 0.87, 0.88])
_LINES, _SHADOW = np.array([0.74, 0.76, 0.78]), np.array([0.68, 0.69, 0.71])
_GRID, _CELL = 7.0, 0.5  # half width of the ground grid and distance of its lines, in metres
_NEAR, _FADED = 0.5, 11.0  # nearest visible depth, and depth at which lines have faded
_TOWARDS_LIGHT = np.array([-0.3, -0.45])  # in the image
_SUN = np.array([-0.3, -0.5, 0.81])  # in the world, for flat faces
# A round shape is three discs: their size, shift towards the light, and brightness.
_DISCS = ((1.0, 0.0, 0.72), (0.9, 0.16, 1.0), (0.5, 0.6, 1.1))
_RING = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
_CIRCLE = np.stack([np.cos(_RING), np.sin(_RING)], -1)


def render_poses(
    model: mujoco.MjModel,
    qpos: np.ndarray,
    reference: np.ndarray | None = None,
    *,
    size: tuple[int, int] = (480, 360),
    ghost: bool = False,
    frames: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Return an image, uint8 [height, width, 3], of each configuration.

    Args:
      model: the model to draw.
      qpos: [F, nq] configurations.
      reference: [F, nq] configurations of a second figure, drawn in grey on the right.
      size: width and height in pixels.
      ghost: draw the reference in its own place, half transparent.
      frames: indices of the frames to draw; all if None.
    """
    if reference is not None and len(reference) != len(qpos):
        raise ValueError(f"{len(qpos)} poses, but {len(reference)} of the reference")
    if not all(np.isfinite(poses).all() for poses in (qpos, reference) if poses is not None):
        raise ValueError("poses that are not finite cannot be drawn")
    other = None if reference is None else geoms.body_poses(model, reference)
    poses = geoms.body_poses(model, qpos)
    return render_bodies(model, poses, other, size=size, ghost=ghost, frames=frames)


def render_bodies(
    model: mujoco.MjModel,
    poses: BodyPoses,
    reference: BodyPoses | None = None,
    *,
    size: tuple[int, int] = (480, 360),
    ghost: bool = False,
    frames: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Return the images of `render_poses`, from body poses."""
    shapes = primitives.model_shapes(model)
    offset = 0.0 if reference is None or ghost else _OFFSET * height(shapes)
    view, ground = scene.frame_scene(shapes, poses)
    low = np.array([0.0, 0.0, ground])
    poses = poses._replace(pos=poses.pos - low)
    reference = None if reference is None else reference._replace(pos=reference.pos - low)
    large = (_SUPERSAMPLING * size[0], _SUPERSAMPLING * size[1])
    if scene.is_upright(shapes):
        quat = poses.quat[0, 1]
        heading = 2.0 * float(np.arctan2(quat[3], quat[0]))  # as in `rotations.heading`
        cameras = tracking_cameras(poses.pos[:, 1], heading, height(shapes), large, offset)
    else:
        cameras = fixed_cameras(view._replace(aim=view.aim - low), large)
    images = []
    for i in range(len(poses.pos)) if frames is None else frames:
        figure = primitives.place_shapes(shapes, poses, i)
        other = [] if reference is None else _grey(primitives.place_shapes(shapes, reference, i))
        other = [_shift(shape, offset * cameras[i].axes[0]) for shape in other]
        image = _draw_frame(cameras[i], figure, other, ghost)
        images.append(np.asarray(image.reduce(_SUPERSAMPLING)))
    return images


def side_by_side(images: Sequence[np.ndarray]) -> np.ndarray:
    """Return several images as one, from left to right."""
    return np.concatenate(images, axis=1)


def height(shapes: ModelShapes) -> float:
    """Return the height of a figure at rest."""
    return float(scene.rest_bounds(shapes)[1][2])


def _grey(figure: list[Shape]) -> list[Shape]:
    """Return the moving shapes in grey, with their brightness."""
    moving = [s for s in figure if s.moves]
    return [s._replace(colour=np.full(3, 0.35 + 0.5 * float(s.colour.mean()))) for s in moving]


def _shift(shape: Shape, by: np.ndarray) -> Shape:
    return shape._replace(points=shape.points + by, order=shape.order + by)


def _draw_frame(
    camera: Camera, figure: list[Shape], other: list[Shape], ghost: bool
) -> Image.Image:
    image = Image.new("RGB", camera.size, _ink(_SKY))
    draw = ImageDraw.Draw(image)
    figure, other = (_in_front(camera, shapes) for shapes in (figure, other))
    draw.rectangle([0, camera.horizon, *camera.size], _ink(_GROUND))
    _draw_grid(draw, camera)
    for shape in figure if ghost else figure + other:
        _draw_shadow(draw, camera, shape)
    if not ghost:
        _draw_shapes(draw, camera, figure + other)
        return image
    solid = image.copy()
    _draw_shapes(ImageDraw.Draw(solid), camera, other)
    image = Image.blend(image, solid, _GHOST)
    _draw_shapes(ImageDraw.Draw(image), camera, figure)
    return image


def _in_front(camera: Camera, figure: list[Shape]) -> list[Shape]:
    """Return the shapes in front of the camera: a second figure may be anywhere."""
    return [s for s in figure if ((s.points - camera.eye) @ camera.axes[2]).min() > _NEAR]


def _draw_grid(draw: ImageDraw.ImageDraw, camera: Camera) -> None:
    """Draw the lines of the ground grid, which fade with their depth."""
    into = camera.axes[2]
    aim = camera.eye - into * camera.eye[2] / into[2]  # on the ground
    pixels, depth = camera.project(np.round(aim / _CELL) * _CELL + _grid())
    faded = np.clip((depth.max(1) - _NEAR) / _FADED, 0.0, 1.0)
    for line, near, fade in zip(pixels, depth.min(1), faded, strict=True):
        if near > _NEAR and fade < 1.0:
            colour = _LINES + fade * (_GROUND - _LINES)
            draw.line(line.ravel().tolist(), _ink(colour), width=_SUPERSAMPLING)


def _grid() -> np.ndarray:
    """Return the ends of short line segments [N, 2, 3] along x and along y."""
    marks, cuts = np.arange(-_GRID, _GRID + _CELL, _CELL), np.arange(-_GRID, _GRID, 2 * _CELL)
    across, start = (part.ravel() for part in np.meshgrid(marks, cuts))
    zeros = np.zeros_like(start)
    a, b = (np.stack([start + end, across, zeros], -1) for end in (0.0, 2 * _CELL))
    along_x = np.stack([a, b], 1)
    return np.concatenate([along_x, along_x[..., [1, 0, 2]]])


def _draw_shadow(draw: ImageDraw.ImageDraw, camera: Camera, shape: Shape) -> None:
    """Draw the vertical projection of a shape onto the ground."""
    ring = shape.radius * np.concatenate([_CIRCLE, np.zeros((len(_CIRCLE), 1))], -1)
    points = (shape.points[:, None] + ring).reshape(-1, 3) * np.array([1.0, 1.0, 0.0])
    _fill_hull(draw, camera.project(points)[0], _SHADOW)


def _draw_shapes(draw: ImageDraw.ImageDraw, camera: Camera, figure: list[Shape]) -> None:
    def depth(shape: Shape) -> tuple[bool, float]:
        # At equal depth, rods (which have two points) are painted before the shapes they join.
        far = float(camera.project(shape.order)[1].max())
        return not shape.moves, far + 1e-6 * len(shape.order)

    for shape in sorted(figure, key=depth, reverse=True):
        if shape.radius:
            _draw_round(draw, camera, shape)
        elif shape.faces:
            _draw_faces(draw, camera, shape)
        else:
            _fill_hull(draw, camera.project(shape.points)[0], shape.colour)


def _draw_round(draw: ImageDraw.ImageDraw, camera: Camera, shape: Shape) -> None:
    centres, depth = camera.project(shape.points)
    radii = (camera.focal * shape.radius / depth)[:, None, None]
    for size, towards, light in _DISCS:
        rim = centres[:, None] + radii * (size * _CIRCLE + towards * (1 - size) * _TOWARDS_LIGHT)
        _fill_hull(draw, rim.reshape(-1, 2), light * shape.colour)


def _draw_faces(draw: ImageDraw.ImageDraw, camera: Camera, shape: Shape) -> None:
    """Draw the faces that the camera sees, by their angle to the sun, and an outline."""
    pixels, _ = camera.project(shape.points)
    first = np.array([face[:3] for face in shape.faces])
    a, b, c = (shape.points[corner] for corner in first.T)
    normals = np.cross(b - a, c - a)
    inwards = np.einsum("fi,fi->f", normals, a - shape.points.mean(0)) < 0
    normals[inwards] *= -1.0
    lengths = np.maximum(np.linalg.norm(normals, axis=-1), 1e-12)
    lights = 0.85 + 0.3 * normals @ _SUN / lengths
    for face in np.flatnonzero(np.einsum("fi,fi->f", normals, a - camera.eye) < 0):
        _fill(draw, pixels[list(shape.faces[face])], lights[face] * shape.colour)
    around = _around(pixels)
    closed = np.concatenate([around, around[:1]])
    draw.line(closed.ravel().tolist(), _ink(_DISCS[0][2] * shape.colour), width=_SUPERSAMPLING)


def _around(points: np.ndarray) -> np.ndarray:
    """Return the corners of the hull of points, in order; none if all are on one line."""
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        return points[:0]


def _fill_hull(draw: ImageDraw.ImageDraw, points: np.ndarray, colour: np.ndarray) -> None:
    corners = _around(points)
    if len(corners):  # none of a flat shape that is seen from its edge
        _fill(draw, corners, colour)


def _fill(draw: ImageDraw.ImageDraw, corners: np.ndarray, colour: np.ndarray) -> None:
    draw.polygon(corners.ravel().tolist(), _ink(colour))


def _ink(colour: np.ndarray) -> tuple[int, int, int]:
    r, g, b = (int(round(255 * min(max(float(c), 0.0), 1.0))) for c in colour)
    return r, g, b
