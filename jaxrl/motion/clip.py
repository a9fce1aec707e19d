"""One motion clip: the poses of a model at a steady rate, validated and resampled.

Poses are NumPy arrays in double precision, and their differences are MuJoCo's own, so that every
kind of joint is treated alike: rotations take the shortest path.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

from typing import NamedTuple

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.errors import UserError
from jaxrl.motion.skeleton import Skeleton
from jaxrl.utils.formatting import plural

FPS = 30.0  # frames, and actions, per second of all motion environments
# How far a quaternion's norm may be from 1. Clips edited by hand are not exact: most are off by
# 0.08, and DeepMimic's kick drifts to 0.58 and back while its rotations stay smooth.
_UNIT = 0.2
_DRIFTED = 0.5
_LATE = 0.05  # a last frame that is late by this fraction of a step counts as on time


class Plan(NamedTuple):
    """A physically feasible version of a clip, found by `jaxrl.clips.plan`."""

    qpos: np.ndarray  # float64 [F, nq], poses that the simulation reaches
    qvel: np.ndarray  # float64 [F, nv]
    feedforward: np.ndarray  # float64 [F, nu]: offsets of servo targets that lead to these poses
    substeps: int  # physics steps per frame: a plan is valid only for this number


class Clip(NamedTuple):
    """A motion of F frames."""

    name: str
    fps: float
    loops: bool  # the last frame is the first one of the next cycle
    qpos: np.ndarray  # float64 [F, nq], in the model's order
    repairs: tuple[str, ...] = ()  # what was repaired when the file was read, a line each
    plan: Plan | None = None

    @property
    def seconds(self) -> float:
        """Duration."""
        return (len(self.qpos) - 1) / self.fps


def validate(clip: Clip, skeleton: Skeleton, file: str) -> Clip:
    """Return the clip with continuous unit quaternions; raise UserError if it does not fit."""
    qpos = np.array(clip.qpos, np.float64)
    if qpos.ndim != 2 or qpos.shape[1] != skeleton.model.nq:
        raise UserError(
            f"'{file}': a pose has {qpos.shape[-1] if qpos.ndim else 0} numbers, "
            f"the model needs {skeleton.model.nq}."
        )
    if len(qpos) < 2:
        raise UserError(f"'{file}': {plural(len(qpos), 'frame')}; a motion has at least 2.")
    if not (np.isfinite(clip.fps) and clip.fps > 0):
        raise UserError(f"'{file}': {clip.fps} frames per second; it should be above 0.")
    for joint in skeleton.joints:
        _check_finite(qpos[:, joint.columns], joint.name, file)
    repairs = []
    for start in skeleton.quaternions:
        name = next(j.name for j in reversed(skeleton.joints) if j.qpos <= start)
        columns = slice(start, start + 4)
        repairs += _drift(qpos[:, columns], name)
        qpos[:, columns] = unit_quaternions(qpos[:, columns], name, file)
    return clip._replace(qpos=qpos, repairs=(*clip.repairs, *repairs))


def _check_finite(values: np.ndarray, joint: str, file: str) -> None:
    bad = np.flatnonzero(~np.isfinite(values).all(-1))
    if len(bad):
        raise UserError(f"'{file}': joint '{joint}' is not finite in frame {bad[0]}.")


def unit_quaternions(values: np.ndarray, joint: str, file: str) -> np.ndarray:
    """Return quaternions [F, 4] of unit length, each with the sign nearest to the one before."""
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    bad = np.flatnonzero(~(_near_one(length[:, 0]) | _drifting(length[:, 0])))
    if len(bad):
        raise UserError(
            f"'{file}': the rotation of '{joint}' in frame {bad[0]} has the length "
            f"{length[bad[0], 0]:.3g}, not 1. It should be a quaternion (w, x, y, z)."
        )
    values = values / length
    flipped = np.sum(values[1:] * values[:-1], -1) < 0
    sign = np.cumprod(np.concatenate([[1.0], np.where(flipped, -1.0, 1.0)]))
    return values * sign[:, None]


def _near_one(length: np.ndarray) -> np.ndarray:
    return np.abs(length - 1.0) < _UNIT


def _drifting(length: np.ndarray) -> np.ndarray:
    """Return which norms [F] drift away from 1 gradually: those are still valid directions.

    Where norms jump, or none is near 1, the values are not a joint's quaternions.
    """
    gradual = (np.abs(np.diff(length)) < _UNIT).all() and _near_one(length).any()
    return (np.abs(length - 1.0) < _DRIFTED) & gradual


def _drift(values: np.ndarray, joint: str) -> list[str]:
    length = np.linalg.norm(values, axis=-1)
    drifted = length[~_near_one(length)]
    if not len(drifted):
        return []
    worst = drifted[np.abs(drifted - 1.0).argmax()]
    return [
        f"{joint}: quaternions as far from unit length as {worst:.2f}, "
        f"{plural(len(drifted), 'frame')}"
    ]


def clamp_to_limits(clip: Clip, skeleton: Skeleton) -> Clip:
    """Return the clip with hinges and slides clamped to the model's limits.

    The simulator pushes a start beyond a limit back, and no policy can hold it.
    """
    qpos = clip.qpos.copy()
    for joint in skeleton.joints:
        if joint.limits is not None and joint.kind in ("hinge", "slide"):
            qpos[:, joint.qpos] = np.clip(qpos[:, joint.qpos], *joint.limits)
    return clip._replace(qpos=qpos)


def interpolate(
    model: mujoco.MjModel, qpos: np.ndarray, times: np.ndarray, query_times: np.ndarray
) -> np.ndarray:
    """Return the poses at the query times, of frames [F, nq] at increasing times [F]."""
    poses = np.empty((len(query_times), model.nq))
    step = np.empty(model.nv)
    index = np.clip(np.searchsorted(times, query_times, side="right") - 1, 0, len(times) - 2)
    fraction = (query_times - times[index]) / (times[index + 1] - times[index])
    for row, i, part in zip(poses, index, np.clip(fraction, 0.0, 1.0), strict=True):
        mujoco.mj_differentiatePos(model, step, 1.0, qpos[i], qpos[i + 1])
        row[:] = qpos[i]
        mujoco.mj_integratePos(model, row, step, part)
    return poses


def at_steady_rate(
    model: mujoco.MjModel, qpos: np.ndarray, times: np.ndarray, fps: float
) -> np.ndarray:
    """Return poses at a steady rate, of frames at any increasing times that begin with 0."""
    count = int(np.floor(times[-1] * fps + _LATE)) + 1
    return interpolate(model, qpos, times, np.arange(count) / fps)


def resample(clip: Clip, fps: float, model: mujoco.MjModel) -> Clip:
    """Return the clip at another rate; less than one step may be dropped at its end."""
    if fps == clip.fps:
        return clip
    qpos = at_steady_rate(model, clip.qpos, np.arange(len(clip.qpos)) / clip.fps, fps)
    if len(qpos) < 2:
        raise UserError(f"Clip '{clip.name}' lasts {clip.seconds:.3f} s, less than one step.")
    return clip._replace(fps=fps, qpos=qpos)


def cut(clip: Clip, seconds: float, model: mujoco.MjModel, fps: float = FPS) -> list[Clip]:
    """Cut a clip evenly into crops of at most `seconds`, with names like walk[0]; 0: leave it.

    Neighbours share a frame, so that every step of the clip belongs to one crop. A plan is cut with
    its clip. Crops do not loop.
    """
    if not seconds or clip.seconds <= seconds:
        return [clip]
    if clip.plan is None:  # a plan is valid at its own rate only
        clip = resample(clip, fps, model)
    steps, limit = len(clip.qpos) - 1, int(seconds * clip.fps + _LATE)
    count = -(-steps // limit)
    if count == 1:  # longer by less than a step
        return [clip]
    borders = [steps * i // count for i in range(count + 1)]
    return [
        _part(clip, slice(first, last + 1))._replace(name=f"{clip.name}[{i}]")
        for i, (first, last) in enumerate(zip(borders[:-1], borders[1:], strict=True))
    ]


def _part(clip: Clip, frames: slice) -> Clip:
    plan = clip.plan
    if plan is not None:
        plan = Plan(plan.qpos[frames], plan.qvel[frames], plan.feedforward[frames], plan.substeps)
    return clip._replace(qpos=clip.qpos[frames], plan=plan, loops=False)


def repeat_cycles(clip: Clip, count: int, model: mujoco.MjModel, blend: float = 0.2) -> Clip:
    """Return a looping clip repeated `count` times.

    Each cycle begins at the position and heading where the last one ended. Cycles of captured
    motion do not quite close: the gap is closed over the last `blend` seconds of each.
    """
    if not clip.loops:
        raise UserError(f"Clip '{clip.name}' does not loop.")
    cycle = _close(clip, model, blend)
    parts = [cycle]
    for _ in range(count - 1):
        parts.append(_align(cycle, cycle[0], parts[-1][-1])[1:])
    return clip._replace(qpos=np.concatenate(parts))


def _close(clip: Clip, model: mujoco.MjModel, blend: float) -> np.ndarray:
    """Blend the last pose into the first one, except for position and heading."""
    qpos = clip.qpos.copy()
    gap = np.empty(model.nv)
    goal = _align(qpos[:1], qpos[0], qpos[-1])[0]
    mujoco.mj_differentiatePos(model, gap, 1.0, qpos[-1], goal)
    count = min(len(qpos) - 1, max(1, round(blend * clip.fps)))
    for i in range(1, count + 1):
        part = i / count
        mujoco.mj_integratePos(model, qpos[i - count - 1], gap, part * part * (3.0 - 2.0 * part))
    return qpos


def _align(qpos: np.ndarray, pose: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Move poses on the ground so that `pose` has the position and heading of `goal`."""
    rotation = Rotation.from_rotvec([0.0, 0.0, _yaw(goal) - _yaw(pose)])
    moved = qpos.copy()
    offset = qpos[:, :3] - pose[:3]
    moved[:, :2] = goal[:2] + rotation.apply(offset)[:, :2]
    root = rotation * Rotation.from_quat(qpos[:, 3:7], scalar_first=True)
    moved[:, 3:7] = root.as_quat(scalar_first=True)
    return moved


def _yaw(pose: np.ndarray) -> float:
    """Return the yaw, as defined by `rotations.heading`."""
    return 2.0 * float(np.arctan2(pose[6], pose[3]))
