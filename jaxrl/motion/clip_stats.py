"""Statistics of a clip before training on it: length, speed, and violations of limits."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.motion.clip import Clip, clamp_to_limits
from jaxrl.motion.ground import lowest_points, put_on_ground
from jaxrl.motion.skeleton import Joint, Skeleton

_WIDTH = {"ball": 3, "slide": 1, "hinge": 1}  # speeds of a joint
_ROUNDING = 1e-6  # smaller violations of a limit are rounding errors


class LimitViolation(NamedTuple):
    """A joint that exceeds its limits."""

    joint: str
    excess: float  # the largest, in radians (slides: metres)
    frames: int  # number of frames


class ClipStats(NamedTuple):
    """Statistics of one clip, in metres, seconds and radians."""

    name: str
    seconds: float
    frames: int
    fps: float
    loops: bool
    speed: float  # mean horizontal speed of the root
    root_heights: tuple[float, float]  # minimum and maximum
    violations: tuple[LimitViolation, ...]
    lowest: float  # lowest point of any geom in any frame of the file
    lowest_grounded: float  # the same after clamping and grounding, as in training
    fastest: tuple[str, float]  # the fastest joint, and its speed
    repairs: tuple[str, ...]  # what was repaired when the file was read
    planned: bool  # has it a plan?


def compute(clip: Clip, skeleton: Skeleton) -> ClipStats:
    """Return the statistics of a clip."""
    model, qpos = skeleton.model, clip.qpos
    path = np.linalg.norm(np.diff(qpos[:, :2], axis=0), axis=-1).sum()
    prepared = put_on_ground(clamp_to_limits(clip, skeleton), model)
    return ClipStats(
        name=clip.name,
        seconds=clip.seconds,
        frames=len(qpos),
        fps=clip.fps,
        loops=clip.loops,
        speed=float(path) / clip.seconds,
        root_heights=(float(qpos[:, 2].min()), float(qpos[:, 2].max())),
        violations=_violations(clip, skeleton),
        lowest=float(lowest_points(model, qpos).min()),
        lowest_grounded=float(lowest_points(model, prepared.qpos).min()),
        fastest=_fastest(clip, skeleton),
        repairs=clip.repairs,
        planned=clip.plan is not None,
    )


def _violations(clip: Clip, skeleton: Skeleton) -> tuple[LimitViolation, ...]:
    violations = []
    for joint in skeleton.joints:
        if joint.limits is not None:
            low, high = joint.limits
            values = _limited_value(joint, clip.qpos)
            excess = np.maximum(low - values, values - high)
            count = int((excess > _ROUNDING).sum())
            if count:
                violations.append(LimitViolation(joint.name, float(excess.max()), count))
    return tuple(violations)


def _limited_value(joint: Joint, qpos: np.ndarray) -> np.ndarray:
    """Return the value that a joint's limits apply to; of a ball joint, its rotation angle."""
    if joint.kind == "ball":
        return Rotation.from_quat(qpos[:, joint.columns], scalar_first=True).magnitude()
    return qpos[:, joint.qpos]


def _fastest(clip: Clip, skeleton: Skeleton) -> tuple[str, float]:
    """Return the joint (after the root) with the greatest speed between two frames."""
    model = skeleton.model
    speeds = np.empty((len(clip.qpos) - 1, model.nv))
    for row, before, after in zip(speeds, clip.qpos[:-1], clip.qpos[1:], strict=True):
        mujoco.mj_differentiatePos(model, row, 1.0 / clip.fps, before, after)
    greatest = {
        joint.name: float(
            np.linalg.norm(speeds[:, joint.dof : joint.dof + _WIDTH[joint.kind]], axis=-1).max()
        )
        for joint in skeleton.joints[1:]
    }
    return max(greatest.items(), key=lambda item: item[1], default=("", 0.0))
