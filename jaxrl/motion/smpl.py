"""The SMPL body: names and order of its joints, and PHC's motions in AMASS' terms.

Rotations are converted with NumPy, in double precision, once per file.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.motion.formats.pickled import SmplMotion

# fmt: off
JOINTS = (  # as AMASS' poses are ordered
    "Pelvis", "L_Hip", "R_Hip", "Torso", "L_Knee", "R_Knee", "Spine", "L_Ankle", "R_Ankle",
    "Chest", "L_Toe", "R_Toe", "Neck", "L_Thorax", "R_Thorax", "Head", "L_Shoulder", "R_Shoulder",
    "L_Elbow", "R_Elbow", "L_Wrist", "R_Wrist", "L_Hand", "R_Hand",
)
MUJOCO_BODIES = (  # depth first, as in PHC's model
    "Pelvis", "L_Hip", "L_Knee", "L_Ankle", "L_Toe", "R_Hip", "R_Knee", "R_Ankle", "R_Toe",
    "Torso", "Spine", "Chest", "Neck", "Head", "L_Thorax", "L_Shoulder", "L_Elbow", "L_Wrist",
    "L_Hand", "R_Thorax", "R_Shoulder", "R_Elbow", "R_Wrist", "R_Hand",
)
# fmt: on
PARENT = {
    "Pelvis": None,
    **{f"{side}_Hip": "Pelvis" for side in "LR"},
    **{f"{side}_Knee": f"{side}_Hip" for side in "LR"},
    **{f"{side}_Ankle": f"{side}_Knee" for side in "LR"},
    **{f"{side}_Toe": f"{side}_Ankle" for side in "LR"},
    "Torso": "Pelvis",
    "Spine": "Torso",
    "Chest": "Spine",
    "Neck": "Chest",
    "Head": "Neck",
    **{f"{side}_Thorax": "Chest" for side in "LR"},
    **{f"{side}_Shoulder": f"{side}_Thorax" for side in "LR"},
    **{f"{side}_Elbow": f"{side}_Shoulder" for side in "LR"},
    **{f"{side}_Wrist": f"{side}_Elbow" for side in "LR"},
    **{f"{side}_Hand": f"{side}_Wrist" for side in "LR"},
}
SMPL_TO_MUJOCO = tuple(JOINTS.index(name) for name in MUJOCO_BODIES)
MUJOCO_TO_SMPL = tuple(MUJOCO_BODIES.index(name) for name in JOINTS)
# SMPL's rest pose lies on its back where z is up. PHC counts global rotations from the body
# standing upright, facing x: it multiplies them by this one's inverse from the right.
UPRIGHT = (0.5, 0.5, 0.5, 0.5)  # xyzw
# Where the pelvis of the mean neutral body is when `trans` is 0, in metres, whatever its pose.
PELVIS = (-0.0018, -0.2233, 0.0282)


class AmassFields(NamedTuple):
    """The fields of an AMASS file of F frames."""

    trans: np.ndarray  # [F, 3]
    poses: np.ndarray  # [F, 72] local rotations, axis-angle
    fps: float


def global_rotations(poses: np.ndarray) -> np.ndarray:
    """Convert local axis-angles [F, 72] into PHC's `pose_quat_global` [F, 24, 4].

    G_root = L_root,   G_j = G_parent(j) L_j,   and then G_j · UPRIGHT⁻¹
    """
    local = poses.reshape(len(poses), len(JOINTS), 3)
    rotated: dict[str, Rotation] = {}
    for name in MUJOCO_BODIES:  # parents come before their children
        own = Rotation.from_rotvec(local[:, JOINTS.index(name)])
        parent = PARENT[name]
        rotated[name] = own if parent is None else rotated[parent] * own
    upright = Rotation.from_quat(UPRIGHT).inv()
    return np.stack([(rotated[name] * upright).as_quat() for name in MUJOCO_BODIES], axis=1)


def local_poses(rotations: np.ndarray) -> np.ndarray:
    """Convert PHC's `pose_quat_global` [F, 24, 4] into local axis-angles [F, 72]."""
    upright = Rotation.from_quat(UPRIGHT)
    rotated = {
        name: Rotation.from_quat(rotations[:, i]) * upright for i, name in enumerate(MUJOCO_BODIES)
    }
    local = []
    for name in JOINTS:
        parent = PARENT[name]
        own = rotated[name] if parent is None else rotated[parent].inv() * rotated[name]
        local.append(own.as_rotvec())
    return np.stack(local, axis=1).reshape(len(rotations), -1)


def amass_fields(motion: SmplMotion) -> AmassFields:
    """Convert a motion of PHC's file to AMASS' fields, so that both are retargeted alike."""
    poses = motion.poses
    if poses is None:
        assert motion.global_rotations is not None  # the reader checked it
        poses = local_poses(motion.global_rotations)
    return AmassFields(motion.root - np.array(PELVIS), poses, motion.fps)
