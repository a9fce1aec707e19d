"""Pictures of a model by MuJoCo's own renderer, where a graphics library is found."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import copy
from collections.abc import Sequence

import mujoco
import numpy as np

from jaxrl.errors import UserError
from jaxrl.rendering import primitives, scene
from jaxrl.rendering.geoms import Bodies

_FAR = 3.4  # how far away the camera is, in radii
_AZIMUTH = 115.0  # degrees; from the right side of what heads along x, and a little from in front


def paint(
    model: mujoco.MjModel,
    where: Bodies,
    qpos: np.ndarray,
    moments: Sequence[int],
    size: tuple[int, int] = (640, 480),
) -> list[np.ndarray]:
    """Return a picture, uint8 [height, width, 3], of some poses [F, nq] by number."""
    model = copy.copy(model)  # its lights are changed
    seen, _ = scene.look(primitives.prepare(model), where)
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    by_hand = np.flatnonzero(model.body_mocapid >= 0)
    numbers = model.body_mocapid[by_hand]
    camera.distance, camera.azimuth = _FAR * seen.radius, _AZIMUTH
    camera.elevation = -float(np.degrees(seen.above))
    pictures = []
    with _renderer(model, size) as renderer:
        for i in moments:
            data.qpos[:] = qpos[i]
            data.mocap_pos[numbers] = where.place[i, by_hand]
            data.mocap_quat[numbers] = where.turn[i, by_hand]
            mujoco.mj_forward(model, data)
            camera.lookat[:] = seen.aim[i]
            renderer.update_scene(data, camera)
            pictures.append(renderer.render().copy())
    return pictures


def _renderer(model: mujoco.MjModel, size: tuple[int, int]) -> mujoco.Renderer:
    # Many models leave all light to the viewer's lamp, which by itself is dim.
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
