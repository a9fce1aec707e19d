"""Where a motion touches the ground, found from the shapes of the model's parts."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import mujoco
import numpy as np

from jaxrl.motion.clip import Clip


def grounded(clip: Clip, model: mujoco.MjModel, seconds: float | None = None) -> Clip:
    """Raise or lower a clip as a whole, so that its lowest point is at height 0.

    With `seconds`, only its beginning counts: for a clip that goes below the ground later on.
    """
    count = None if seconds is None else max(1, round(seconds * clip.fps))
    qpos = clip.qpos.copy()
    qpos[:, 2] -= lowest(model, qpos[:count]).min()
    return clip._replace(qpos=qpos)


def lowest(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return the height of the lowest point of any moving part, for poses [F, nq]."""
    parts = _parts(model)
    data = mujoco.MjData(model)
    heights = np.empty((len(qpos), len(parts)))
    for row, pose in zip(heights, qpos, strict=True):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        for k, geom in enumerate(parts):
            up = data.geom_xmat[geom].reshape(3, 3)[2]  # of the part's axes, how far each points up
            row[k] = data.geom_xpos[geom, 2] - _reach(model, geom, up)
    return heights.min(-1)


def _parts(model: mujoco.MjModel) -> list[int]:
    """Return the moving parts that can touch something; if none can, all moving parts."""
    moving = [i for i in range(model.ngeom) if model.body_weldid[model.geom_bodyid[i]] != 0]
    solid = [i for i in moving if model.geom_contype[i] or model.geom_conaffinity[i]]
    return solid or moving


def _reach(model: mujoco.MjModel, geom: int, up: np.ndarray) -> float:
    """Return how far below its centre a part reaches."""
    shape, size = model.geom_type[geom], model.geom_size[geom]
    kinds = mujoco.mjtGeom
    if shape == kinds.mjGEOM_SPHERE:
        return size[0]
    if shape == kinds.mjGEOM_CAPSULE:
        return size[0] + size[1] * abs(up[2])
    if shape == kinds.mjGEOM_CYLINDER:
        return size[0] * np.hypot(up[0], up[1]) + size[1] * abs(up[2])
    if shape == kinds.mjGEOM_BOX:
        return float(size @ np.abs(up))
    if shape == kinds.mjGEOM_ELLIPSOID:
        return float(np.linalg.norm(size * up))
    if shape == kinds.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start = model.mesh_vertadr[mesh]
        corners = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
        return -float((corners @ up).min())
    return float(model.geom_rbound[geom])
