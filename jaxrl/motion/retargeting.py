"""Other humanoids' poses carried over to ours, by the local rotations of its joints.

Sizes are ours, and so is the rest pose: standing, arms hanging. Of the turn at a knee or elbow only
what our hinge can follow is kept.
"""

from collections.abc import Mapping

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.motion.skeleton import Skeleton

# How our arms are turned when others' rest: hanging arms, raised sideways.
RAISED = {
    "left": Rotation.from_euler("x", 90, degrees=True),
    "right": Rotation.from_euler("x", -90, degrees=True),
}


def poses(
    place: np.ndarray,
    root: Rotation,
    turns: Mapping[str, Rotation],
    skeleton: Skeleton,
    *,
    arms_out: bool,
) -> np.ndarray:
    """Return poses [F, nq] of our humanoid.

    `place` [F, 3] and `root` are the root's; `turns` are local, in axes like ours, by the names of
    our joints. `arms_out`: they count from a rest pose whose arms are stretched out sideways.
    """
    qpos = np.tile(skeleton.model.qpos0, (len(place), 1))
    qpos[:, :3] = place
    qpos[:, 3:7] = root.as_quat(scalar_first=True)
    for name, turn in turns.items():
        joint = skeleton.joint(name)
        assert joint is not None  # whoever calls has checked that it is our humanoid
        turn = _from_arms_out(name, turn) if arms_out else turn
        if joint.kind == "hinge":
            qpos[:, joint.qpos] = about(turn, joint.axis)
        else:
            qpos[:, joint.columns] = turn.as_quat(scalar_first=True)
    return qpos


def _from_arms_out(name: str, turn: Rotation) -> Rotation:
    """Let a turn count from hanging arms instead of arms stretched out."""
    side, _, part = name.partition("_")
    if part == "shoulder":
        return turn * RAISED[side]
    if part == "elbow":
        return RAISED[side].inv() * turn * RAISED[side]
    return turn


def about(turn: Rotation, axis: np.ndarray) -> np.ndarray:
    """Return the angle in (-pi, pi] by which rotations turn about an axis."""
    q = turn.as_quat(scalar_first=True)
    angle = 2.0 * np.arctan2(q[:, 1:] @ axis, q[:, 0])
    return np.arctan2(np.sin(angle), np.cos(angle))
