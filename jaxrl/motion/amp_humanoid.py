"""Motions of the humanoid of IsaacGymEnvs and MimicKit, retargeted to the packaged one.

It has the same 15 bodies, sizes and axes, under other names. IsaacGymEnvs' arms hang in the rest
pose, as ours do; MimicKit's are stretched out sideways. A SkeletonMotion says by the place of its
forearms which of the two it counts from; MimicKit's rows do not say, but all have the same.
"""

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.errors import UserError, nearest
from jaxrl.motion import clip as clips
from jaxrl.motion import retargeting
from jaxrl.motion.clip import Clip
from jaxrl.motion.formats.pickled import RowMotion, SkeletonMotion
from jaxrl.motion.skeleton import Skeleton

_SIDES = ("right", "left")
# Our joint, their body that it moves, and the axis of its hinge in MimicKit's rest pose (None: it
# turns freely), in the order of MimicKit's rows.
_ARM = (("shoulder", "upper_arm", None), ("elbow", "lower_arm", [0.0, 0.0, 1.0]))
_LEG = (("hip", "thigh", None), ("knee", "shin", [0.0, 1.0, 0.0]), ("ankle", "foot", None))
_JOINTS = (
    ("chest", "torso", None),
    ("neck", "head", None),
    *((f"{side}_{j}", f"{side}_{b}", axis) for side in _SIDES for j, b, axis in _ARM),
    *((f"{side}_{j}", f"{side}_{b}", axis) for side in _SIDES for j, b, axis in _LEG),
)
_ROOT = "pelvis"
_NUMBERS = 6 + sum(3 if axis is None else 1 for _, _, axis in _JOINTS)
# Where the right forearm is from its upper arm, in the two rest poses.
_REST = {"hanging": np.array([0.0, 0.0, -1.0]), "out": np.array([0.0, -1.0, 0.0])}


def from_skeleton_motion(motion: SkeletonMotion, skeleton: Skeleton) -> Clip:
    """Retarget a motion of IsaacGymEnvs by the names of its bodies."""
    at = {name: i for i, name in enumerate(motion.bodies)}
    needed = [_ROOT, *(body for _, body, _ in _JOINTS)]
    for name in needed:
        if name not in at:
            raise UserError(
                f"'{motion.name}': body '{name}' is missing.{nearest(name, motion.bodies)} Of "
                "skeletons in such files, only the AMP humanoid can be carried over to ours."
            )
    local = _local(motion)
    qpos = retargeting.poses(
        motion.root * _scale(motion, skeleton),
        local[at[_ROOT]],
        {joint: local[at[body]] for joint, body, _ in _JOINTS},
        skeleton,
        arms_out=_arms_out(motion),
    )
    return clips.validate(Clip(motion.name, motion.fps, False, qpos), skeleton, motion.name)


def _local(motion: SkeletonMotion) -> list[Rotation]:
    """Return each body's rotation relative to its parent's."""
    turned = [Rotation.from_quat(motion.rotations[:, i]) for i in range(len(motion.bodies))]
    if motion.local:
        return turned
    parents = [int(parent) for parent in motion.parents]
    return [
        turned[p].inv() * own if p >= 0 else own for own, p in zip(turned, parents, strict=True)
    ]


def _arms_out(motion: SkeletonMotion) -> bool:
    """Return whether the rest pose has its arms stretched out, by the right forearm."""
    offset = motion.offsets[motion.bodies.index("right_lower_arm")]
    along = offset / max(float(np.linalg.norm(offset)), 1e-9)
    for name, direction in _REST.items():
        if along @ direction > 0.98:
            return name == "out"
    raise UserError(
        f"'{motion.name}': at rest its right forearm is at {np.round(offset, 3).tolist()} from the "
        "upper arm. Arms that hang (along -z) or are stretched out (along -y) are understood."
    )


def _scale(motion: SkeletonMotion, skeleton: Skeleton) -> float:
    """Return how much longer our legs are: strides are as long as legs, or feet would slide."""
    theirs = [motion.offsets[motion.bodies.index(f"right_{b}")] for b in ("shin", "foot")]
    ours = [skeleton.offsets[skeleton.bodies.index(f"right_{b}")] for b in ("knee", "ankle")]
    length = sum(float(np.linalg.norm(offset)) for offset in theirs)
    if length < 1e-3:
        raise UserError(f"'{motion.name}': its right leg has no length.")
    return sum(float(np.linalg.norm(offset)) for offset in ours) / length


def from_rows(motion: RowMotion, skeleton: Skeleton) -> Clip:
    """Retarget a motion of MimicKit's humanoid; the rows of other characters are unknown."""
    if motion.rows.shape[1] != _NUMBERS:
        raise UserError(
            f"'{motion.name}': {motion.rows.shape[1]} numbers a row. MimicKit's humanoid has "
            f"{_NUMBERS}; what the rows of other characters mean, only their model files say."
        )
    joint_rotations: dict[str, Rotation] = {}
    start = 6
    for joint, _, axis in _JOINTS:
        width = 3 if axis is None else 1
        values = motion.rows[:, start : start + width]
        vector = values if axis is None else values * np.array(axis)
        joint_rotations[joint] = Rotation.from_rotvec(vector)
        start += width
    root = Rotation.from_rotvec(motion.rows[:, 3:6])
    qpos = retargeting.poses(motion.rows[:, :3], root, joint_rotations, skeleton, arms_out=True)
    return clips.validate(Clip(motion.name, motion.fps, motion.loops, qpos), skeleton, motion.name)
