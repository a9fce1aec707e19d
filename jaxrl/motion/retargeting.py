"""Retarget other humanoids' poses to the packaged one, by local joint rotations.

Sizes are ours, and so is the rest pose: standing, arms hanging. Of the rotation at a knee or elbow
only the part about our hinge is kept.
"""

from collections.abc import Mapping

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.motion.skeleton import Skeleton

# The rotations of our arms in others' rest poses: hanging arms, raised sideways.
RAISED = {
    "left": Rotation.from_euler("x", 90, degrees=True),
    "right": Rotation.from_euler("x", -90, degrees=True),
}


def poses(
    position: np.ndarray,
    root: Rotation,
    joint_rotations: Mapping[str, Rotation],
    skeleton: Skeleton,
    *,
    arms_out: bool,
) -> np.ndarray:
    """Return poses [F, nq] of our humanoid.

    `position` [F, 3] and `root` are the root's; `joint_rotations` are local, in axes like
    ours, by the names of our joints. `arms_out`: they are relative to a rest pose whose arms are
    stretched out sideways.
    """
    qpos = np.tile(skeleton.model.qpos0, (len(position), 1))
    qpos[:, :3] = position
    qpos[:, 3:7] = root.as_quat(scalar_first=True)
    for name, rotation in joint_rotations.items():
        joint = skeleton.joint(name)
        assert joint is not None  # callers check that it is our humanoid
        rotation = _from_arms_out(name, rotation) if arms_out else rotation
        if joint.kind == "hinge":
            qpos[:, joint.qpos] = about(rotation, joint.axis)
        else:
            qpos[:, joint.columns] = rotation.as_quat(scalar_first=True)
    return qpos


def _from_arms_out(name: str, rotation: Rotation) -> Rotation:
    """Return a rotation relative to hanging arms instead of arms stretched out."""
    side, _, part = name.partition("_")
    if part == "shoulder":
        return rotation * RAISED[side]
    if part == "elbow":
        return RAISED[side].inv() * rotation * RAISED[side]
    return rotation


def about(rotation: Rotation, axis: np.ndarray) -> np.ndarray:
    """Return the angle in (-pi, pi] by which rotations turn about an axis."""
    q = rotation.as_quat(scalar_first=True)
    angle = 2.0 * np.arctan2(q[:, 1:] @ axis, q[:, 0])
    return np.arctan2(np.sin(angle), np.cos(angle))
