"""Ground contact of a motion, found from the shapes of the model's geoms."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import mujoco
import numpy as np
from scipy import ndimage

from jaxrl.motion.clip import Clip


def put_on_ground(
    clip: Clip, model: mujoco.MjModel, below: float = 0.2, spread: float = 0.067
) -> Clip:
    """Put a clip onto the ground at height 0.

    All frames are shifted until the lowest point is below the ground in a fraction `below` of
    them: shifted by the lowest frame, one stray foot would let all others float. Frames that are
    still below the ground are then lifted, smoothed over `spread` seconds.
    """
    heights = lowest_points(model, clip.qpos)
    level = np.quantile(heights, below)
    width = 2 * round(spread * clip.fps) + 1
    edges = "wrap" if clip.loops else "nearest"
    # The mean of local maxima is nowhere below the value itself.
    depth = ndimage.maximum_filter1d(np.maximum(level - heights, 0.0), width, mode=edges)
    qpos = clip.qpos.copy()
    qpos[:, 2] += ndimage.uniform_filter1d(depth, width, mode=edges) - level
    return clip._replace(qpos=qpos)


def lowest_points(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return the height [F] of the lowest point of any moving geom, for poses [F, nq]."""
    geoms = _moving_geoms(model)
    data = mujoco.MjData(model)
    centre, up = np.empty((len(qpos), len(geoms))), np.empty((len(qpos), len(geoms), 3))
    for i, pose in enumerate(qpos):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        centre[i] = data.geom_xpos[geoms, 2]
        up[i] = data.geom_xmat[geoms, 6:]  # vertical components of the geom's axes
    extents = [_extent_below(model, geom, up[:, k]) for k, geom in enumerate(geoms)]
    return (centre - np.stack(extents, -1)).min(-1)


def _moving_geoms(model: mujoco.MjModel) -> list[int]:
    """Return the moving geoms that can collide; if none can, all moving geoms."""
    moving = [i for i in range(model.ngeom) if model.body_weldid[model.geom_bodyid[i]] != 0]
    solid = [i for i in moving if model.geom_contype[i] or model.geom_conaffinity[i]]
    return solid or moving


def _extent_below(model: mujoco.MjModel, geom: int, up: np.ndarray) -> np.ndarray:
    """Return how far a geom extends below its centre, given its axes' vertical parts [F, 3]."""
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
