"""The view of a scene and the height of its ground, from the poses of a model."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

import mujoco
import numpy as np

from jaxrl.rendering import camera, geoms, primitives
from jaxrl.rendering.camera import View
from jaxrl.rendering.geoms import BodyPoses
from jaxrl.rendering.primitives import ModelShapes

_UPRIGHT = 0.6  # least height of an upright figure, in widths
_BELOW = 0.05  # distance of the ground below a model that has none, in radii


def is_upright(shapes: ModelShapes) -> bool:
    """Return whether a model moves freely and stands upright, arms spread at most."""
    model = shapes.model
    if not model.njnt or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        return False
    low, high = rest_bounds(shapes)
    return bool(high[2] > _UPRIGHT * max((high - low)[:2]))


def rest_bounds(shapes: ModelShapes) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of the box around what moves, in the model's default pose."""
    poses = geoms.body_poses(shapes.model, shapes.model.qpos0[None])
    placed = primitives.place_shapes(shapes, poses)
    return primitives.bounding_box([shape for shape in placed if shape.moves])


def frame_scene(shapes: ModelShapes, poses: BodyPoses) -> tuple[View, float]:
    """Return a view of all poses, and the height of the ground."""
    placed = [primitives.place_shapes(shapes, poses, i) for i in range(len(poses.pos))]
    boxes = [primitives.bounding_box([s for s in frame if s.moves] or frame) for frame in placed]
    low, high = (np.array(corners) for corners in zip(*boxes, strict=True))
    fixed = [shape for shape in placed[0] if not shape.moves]
    view = camera.make_view(low, high, np.array(primitives.bounding_box(fixed)) if fixed else None)
    ground = geoms.ground_height(shapes.model)
    if ground is None:
        ground = float(low[:, 2].min()) - _BELOW * view.radius
    return view, ground
