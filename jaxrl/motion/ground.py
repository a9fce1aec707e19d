"""Where a motion touches the ground, found from the shapes of the model's parts."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import mujoco
import numpy as np
from scipy import ndimage

from jaxrl.motion.clip import Clip


def grounded(clip: Clip, model: mujoco.MjModel, part: float = 0.2, spread: float = 0.067) -> Clip:
    """Put a clip onto the ground at height 0.

    It is moved as a whole until its lowest point is below the ground in only a part of its frames:
    by the very lowest frame, one foot that strays would let all the rest float. Then what is still
    below the ground is lifted out of it, evenly over the frames within `spread` seconds.
    """
    heights = lowest(model, clip.qpos)
    level = np.quantile(heights, part)
    width = 2 * round(spread * clip.fps) + 1
    edges = "wrap" if clip.loops else "nearest"
    # A mean of the highest values around is nowhere below the value itself.
    depth = ndimage.maximum_filter1d(np.maximum(level - heights, 0.0), width, mode=edges)
    qpos = clip.qpos.copy()
    qpos[:, 2] += ndimage.uniform_filter1d(depth, width, mode=edges) - level
    return clip._replace(qpos=qpos)


def lowest(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return the height of the lowest point of any moving part, for poses [F, nq]."""
    parts = _parts(model)
    data = mujoco.MjData(model)
    centre, up = np.empty((len(qpos), len(parts))), np.empty((len(qpos), len(parts), 3))
    for i, pose in enumerate(qpos):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        centre[i] = data.geom_xpos[parts, 2]
        up[i] = data.geom_xmat[parts, 6:]  # of the part's axes, how far each points up
    below = [_reach(model, geom, up[:, k]) for k, geom in enumerate(parts)]
    return (centre - np.stack(below, -1)).min(-1)


def _parts(model: mujoco.MjModel) -> list[int]:
    """Return the moving parts that can touch something; if none can, all moving parts."""
    moving = [i for i in range(model.ngeom) if model.body_weldid[model.geom_bodyid[i]] != 0]
    solid = [i for i in moving if model.geom_contype[i] or model.geom_conaffinity[i]]
    return solid or moving


def _reach(model: mujoco.MjModel, geom: int, up: np.ndarray) -> np.ndarray:
    """Return how far below its centre a part reaches, with its axes pointing up by [F, 3]."""
    shape, size = model.geom_type[geom], model.geom_size[geom]
    kinds = mujoco.mjtGeom
    upright = np.abs(up[:, 2])
    if shape == kinds.mjGEOM_CAPSULE:
        return size[0] + size[1] * upright
    if shape == kinds.mjGEOM_CYLINDER:
        return size[0] * np.hypot(up[:, 0], up[:, 1]) + size[1] * upright
    if shape == kinds.mjGEOM_BOX:
        return np.abs(up) @ size
    if shape == kinds.mjGEOM_ELLIPSOID:
        return np.linalg.norm(up * size, axis=-1)
    if shape == kinds.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start = model.mesh_vertadr[mesh]
        corners = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
        return -(up @ corners.T).min(-1)
    return np.full(len(up), model.geom_rbound[geom])  # a sphere
