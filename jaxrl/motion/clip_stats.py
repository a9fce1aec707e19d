"""What there is to know of a clip before training on it: how long, how fast, and what is wrong."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.motion.clip import Clip, limited
from jaxrl.motion.ground import grounded, lowest
from jaxrl.motion.skeleton import Joint, Skeleton

_WIDTH = {"ball": 3, "slide": 1, "hinge": 1}  # speeds of a joint
_NOTHING = 1e-6  # beyond a limit by no more than rounding


class Beyond(NamedTuple):
    """A joint that goes beyond its limits."""

    joint: str
    by: float  # at most, in radians (a slide's in metres)
    frames: int  # in so many


class Survey(NamedTuple):
    """What a clip is like; lengths in metres, times in seconds, angles in radians."""

    name: str
    seconds: float
    frames: int
    fps: float
    loops: bool
    speed: float  # of the root over the ground, on average
    root_heights: tuple[float, float]  # its least and greatest
    beyond: tuple[Beyond, ...]
    lowest: float  # the lowest point of any part in any frame, as the file has it
    lowest_grounded: float  # and after limits and ground are seen to, as training does
    fastest: tuple[str, float]  # the joint that moves fastest, and how fast
    mended: tuple[str, ...]  # what reading it had to put right
    planned: bool  # is there a way through it that obeys physics?


def survey(clip: Clip, skeleton: Skeleton) -> Survey:
    """Look a clip over."""
    model, qpos = skeleton.model, clip.qpos
    way = np.linalg.norm(np.diff(qpos[:, :2], axis=0), axis=-1).sum()
    ready = grounded(limited(clip, skeleton), model)
    return Survey(
        name=clip.name,
        seconds=clip.seconds,
        frames=len(qpos),
        fps=clip.fps,
        loops=clip.loops,
        speed=float(way) / clip.seconds,
        root_heights=(float(qpos[:, 2].min()), float(qpos[:, 2].max())),
        beyond=_beyond(clip, skeleton),
        lowest=float(lowest(model, qpos).min()),
        lowest_grounded=float(lowest(model, ready.qpos).min()),
        fastest=_fastest(clip, skeleton),
        mended=clip.mended,
        planned=clip.plan is not None,
    )


def _beyond(clip: Clip, skeleton: Skeleton) -> tuple[Beyond, ...]:
    found = []
    for joint in skeleton.joints:
        if joint.limits is not None:
            low, high = joint.limits
            shown = _shown(joint, clip.qpos)
            excess = np.maximum(low - shown, shown - high)
            count = int((excess > _NOTHING).sum())
            if count:
                found.append(Beyond(joint.name, float(excess.max()), count))
    return tuple(found)


def _shown(joint: Joint, qpos: np.ndarray) -> np.ndarray:
    """Return what a joint's limits are about: its value, or how far a ball joint is turned."""
    if joint.kind == "ball":
        return Rotation.from_quat(qpos[:, joint.columns], scalar_first=True).magnitude()
    return qpos[:, joint.qpos]


def _fastest(clip: Clip, skeleton: Skeleton) -> tuple[str, float]:
    """Return the joint (after the root) with the greatest speed between any two frames."""
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
