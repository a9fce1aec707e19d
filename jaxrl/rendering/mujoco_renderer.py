"""Images of a model by MuJoCo's own renderer, which needs a graphics library."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

import copy
from collections.abc import Sequence

import mujoco
import numpy as np

from jaxrl.errors import UserError
from jaxrl.rendering import primitives, scene
from jaxrl.rendering.geoms import BodyPoses

_FAR = 3.4  # distance of the camera, in radii
_AZIMUTH = 115.0  # degrees; from the right side and a little from in front of what heads along x


def render_bodies(
    model: mujoco.MjModel,
    poses: BodyPoses,
    qpos: np.ndarray,
    frames: Sequence[int],
    size: tuple[int, int] = (640, 480),
) -> list[np.ndarray]:
    """Return an image, uint8 [height, width, 3], of each of the chosen frames.

    Args:
      model: the model to draw.
      poses: body poses, of which mocap bodies are taken.
      qpos: [F, nq] configurations.
      frames: indices into both.
      size: width and height in pixels.
    """
    model = copy.copy(model)  # its lights are changed
    view, _ = scene.frame_scene(primitives.model_shapes(model), poses)
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    mocap = np.flatnonzero(model.body_mocapid >= 0)
    ids = model.body_mocapid[mocap]
    camera.distance, camera.azimuth = _FAR * view.radius, _AZIMUTH
    camera.elevation = -float(np.degrees(view.elevation))
    images = []
    with _renderer(model, size) as renderer:
        for i in frames:
            data.qpos[:] = qpos[i]
            data.mocap_pos[ids] = poses.pos[i, mocap]
            data.mocap_quat[ids] = poses.quat[i, mocap]
            mujoco.mj_forward(model, data)
            camera.lookat[:] = view.aim[i]
            renderer.update_scene(data, camera)
            images.append(renderer.render().copy())
    return images


def _renderer(model: mujoco.MjModel, size: tuple[int, int]) -> mujoco.Renderer:
    # Many models have no light but the headlight, which is dim by default.
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.4, 0.6
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, size[0])
    model.vis.global_.offheight = max(model.vis.global_.offheight, size[1])
    try:
        return mujoco.Renderer(model, height=size[1], width=size[0])
    except Exception as error:  # each library fails in its own way
        raise UserError(
            f"--gl: MuJoCo finds no graphics library ({error}). Install EGL or OSMesa and set "
            "MUJOCO_GL=egl or MUJOCO_GL=osmesa, or leave out --gl: then none is needed."
        ) from error
