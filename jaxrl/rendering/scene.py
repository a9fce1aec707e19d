"""Where to look, and where the ground is: found from where a model's parts have been."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import mujoco
import numpy as np

from jaxrl.rendering import camera, geoms, primitives
from jaxrl.rendering.camera import View
from jaxrl.rendering.geoms import Bodies
from jaxrl.rendering.primitives import Body

_UPRIGHT = 0.6  # how tall what stands is at least, in widths
_BELOW = 0.05  # how far below everything ground is put where a model has none, in radii


def is_figure(body: Body) -> bool:
    """Tell whether a model moves freely and stands upright, arms spread at most."""
    model = body.model
    if not model.njnt or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        return False
    low, high = at_rest(body)
    return bool(high[2] > _UPRIGHT * max((high - low)[:2]))


def at_rest(body: Body) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a box around what moves, in the model's own pose."""
    here = primitives.placed(body, geoms.bodies(body.model, body.model.qpos0[None]))
    return primitives.extent([shape for shape in here if shape.moves])


def look(body: Body, where: Bodies) -> tuple[View, float]:
    """Return how to look at all poses, and how high the ground is."""
    placed = [primitives.placed(body, where, i) for i in range(len(where.place))]
    boxes = [primitives.extent([s for s in shown if s.moves] or shown) for shown in placed]
    low, high = (np.array(corners) for corners in zip(*boxes, strict=True))
    still = [shape for shape in placed[0] if not shape.moves]
    seen = camera.view(low, high, np.array(primitives.extent(still)) if still else None)
    ground = geoms.ground(body.model)
    if ground is None:
        ground = float(low[:, 2].min()) - _BELOW * seen.radius
    return seen, ground
