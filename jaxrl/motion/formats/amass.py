"""AMASS's motion files (.npz): poses of the SMPL body, retargeted by rotations.

    trans [F, 3] (Z up), poses [F, 3 * joints] (axis times angle), mocap_framerate

SMPL's own axes are x left, y up, z forward, and it rests with its arms stretched out sideways,
where ours hang. Several of its joints make up one of ours (three of the spine the chest); of its
knees and elbows only the turn about our hinge is kept; fingers, toes and wrists are dropped. Body
shapes are ignored: sizes are our humanoid's, and `ground` finds the ground.
"""

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.errors import UserError
from jaxrl.motion import clip as clips
from jaxrl.motion import retargeting, smpl
from jaxrl.motion.clip import Clip
from jaxrl.motion.formats import checks
from jaxrl.motion.formats.npz import Arrays
from jaxrl.motion.skeleton import Skeleton

# Numbers of SMPL's joints, from the trunk outwards, that make up each of ours.
_FROM = {
    "chest": (3, 6, 9),
    "neck": (12, 15),
    "right_hip": (2,),
    "right_knee": (5,),
    "right_ankle": (8,),
    "right_shoulder": (14, 17),
    "right_elbow": (19,),
    "left_hip": (1,),
    "left_knee": (4,),
    "left_ankle": (7,),
    "left_shoulder": (13, 16),
    "left_elbow": (18,),
}
_JOINTS = 22  # of the trunk and limbs; hands and face follow
# Our frames' axes, seen in SMPL's: x is its z, y its x, z its y.
_AXES = Rotation.from_matrix([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
_HEIGHT = 0.93  # of the mean body's pelvis when it stands


def read(file: Path, arrays: Arrays, skeleton: Skeleton) -> Clip:
    """Read a clip at its own rate."""
    checks.our_humanoid(file, skeleton)
    poses = arrays.header("poses")
    if len(poses.shape) != 2 or poses.shape[1] < 3 * _JOINTS:
        raise UserError(
            f"'{file}': 'poses' has the shape {list(poses.shape)}; SMPL's have at least "
            f"{3 * _JOINTS} numbers per frame."
        )
    found = arrays.columns({"poses": (None, poses.shape[1]), "trans": (None, 3)})
    rates = [n for n in ("mocap_framerate", "mocap_frame_rate") if n in arrays.names]
    fps = arrays.number(rates[0] if rates else "mocap_framerate")
    for name, values in found.items():
        bad = np.flatnonzero(~np.isfinite(values).all(-1))
        if len(bad):
            raise UserError(f"'{file}': '{name}' is not finite in frame {bad[0]}.")
    clip = retarget(found["trans"], found["poses"], fps, skeleton, file.stem)
    return clips.validate(clip, skeleton, str(file))


def retarget(
    trans: np.ndarray, poses: np.ndarray, fps: float, skeleton: Skeleton, name: str
) -> Clip:
    """Retarget the SMPL body's motion [F, 3], [F, 66 or more] to the packaged humanoid."""
    rotvecs = poses[:, : 3 * _JOINTS].reshape(len(poses), _JOINTS, 3)
    # Strides are as long as legs: what is walked shrinks with them, or the feet would slide.
    place = (trans + np.array(smpl.PELVIS)) * (skeleton.model.qpos0[2] / _HEIGHT)
    qpos = retargeting.poses(
        place,
        Rotation.from_rotvec(rotvecs[:, 0]) * _AXES,
        {joint: _compose(rotvecs[:, parts]) for joint, parts in _FROM.items()},
        skeleton,
        arms_out=True,
    )
    return Clip(name, fps, False, qpos)


def _compose(rotvecs: np.ndarray) -> Rotation:
    """Return the rotation composed of SMPL's rotations [F, parts, 3], in our axes."""
    # Seen in our axes, a rotation is the same one about an axis seen in ours.
    rotation = Rotation.identity(len(rotvecs))
    for k in range(rotvecs.shape[1]):
        rotation = rotation * Rotation.from_rotvec(_AXES.inv().apply(rotvecs[:, k]))
    return rotation
