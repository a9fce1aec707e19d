"""A synthetic motion made of sines, to try everything without captured clips."""

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.motion.clip import Clip
from jaxrl.motion.skeleton import Skeleton

_BEND = 0.15  # rad, of the standing leg's hip
_LIFT = 0.35  # rad, how much further the lifted one's goes
_SWAY = 0.05  # m, to the side of the standing leg
_SWING = 0.3  # rad, of the arms


def stepping(skeleton: Skeleton, seconds: float = 2.0, fps: float = 30.0) -> Clip:
    """Return our humanoid stepping in place, one step per half second.

    The feet stay flat, and the standing one where it is; it loops after whole seconds.
    """
    time = np.arange(round(seconds * fps) + 1) / fps
    beat = np.sin(2.0 * np.pi * time)
    legs = _legs(skeleton)
    tilt = np.arcsin(_SWAY * beat / legs)  # of the legs, as the root moves over the feet
    poses = {
        "right_shoulder": Rotation.from_rotvec(np.outer(_SWING * beat, [0.0, 1.0, 0.0])),
        "left_shoulder": Rotation.from_rotvec(np.outer(_SWING * beat, [0.0, -1.0, 0.0])),
        "right_elbow": np.full(len(time), 0.4),
        "left_elbow": np.full(len(time), 0.4),
    }
    for side, lifted in (("right", beat), ("left", -beat)):
        poses |= _leg(side, _BEND + _LIFT * np.maximum(lifted, 0.0) ** 2, tilt)
    qpos = np.tile(skeleton.model.qpos0, (len(time), 1))
    qpos[:, 1] = _SWAY * beat
    straight = skeleton.model.qpos0[2] - legs
    qpos[:, 2] = straight + legs * np.cos(_BEND) * np.cos(tilt)
    for name, pose in poses.items():
        joint = skeleton.joint(name)
        assert joint is not None
        turned = isinstance(pose, Rotation)
        qpos[:, joint.columns] = pose.as_quat(scalar_first=True) if turned else pose[:, None]
    return Clip("stepping", fps, seconds == round(seconds), qpos)


def _legs(skeleton: Skeleton) -> float:
    """Return the length of the legs from hip to ankle."""
    below = [skeleton.bodies.index(f"right_{part}") for part in ("knee", "ankle")]
    return float(-skeleton.offsets[below, 2].sum())


def _leg(side: str, bend: np.ndarray, tilt: np.ndarray) -> dict[str, Rotation | np.ndarray]:
    """Return a leg whose thigh goes forward and whose shin goes back by `bend`, the foot flat."""
    outward = Rotation.from_rotvec(np.outer(-tilt, [1.0, 0.0, 0.0]))
    hip = outward * Rotation.from_rotvec(np.outer(-bend, [0.0, 1.0, 0.0]))
    knee = Rotation.from_rotvec(np.outer(2.0 * bend, [0.0, 1.0, 0.0]))
    return {
        f"{side}_hip": hip,
        f"{side}_knee": -2.0 * bend,
        f"{side}_ankle": (hip * knee).inv(),
    }
