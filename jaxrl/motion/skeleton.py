"""The skeleton of a humanoid: bodies and joints of a MuJoCo model, and forward kinematics.

Any model with a free joint at its root works; `load_model(None)` loads the packaged humanoid.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from jaxrl.errors import UserError
from jaxrl.motion import rotations
from jaxrl.types import Array

HUMANOID = Path(__file__).with_name("humanoid.xml")

_KINDS = {
    int(mujoco.mjtJoint.mjJNT_FREE): "free",
    int(mujoco.mjtJoint.mjJNT_BALL): "ball",
    int(mujoco.mjtJoint.mjJNT_SLIDE): "slide",
    int(mujoco.mjtJoint.mjJNT_HINGE): "hinge",
}
WIDTH = {"free": 7, "ball": 4, "slide": 1, "hinge": 1}  # values of a joint in qpos


class Joint(NamedTuple):
    """One joint of a model."""

    name: str
    kind: str  # "free", "ball", "slide" or "hinge"
    body: int  # index of the body that it moves, not counting the world
    qpos: int  # its first index in qpos
    dof: int  # its first index in qvel
    axis: np.ndarray  # [3], in the body's frame
    anchor: np.ndarray  # [3], in the body's frame
    zero: float  # qpos in the pose of the model file (hinge, slide)
    limits: tuple[float, float] | None

    @property
    def columns(self) -> slice:
        """Its indices in qpos."""
        return slice(self.qpos, self.qpos + WIDTH[self.kind])


class Skeleton(NamedTuple):
    """Bodies (without the world) and joints, in the order of the model."""

    bodies: tuple[str, ...]
    parents: tuple[int, ...]  # -1: the world
    offsets: np.ndarray  # [J, 3], in the parent's frame
    rotations: np.ndarray  # [J, 4], of the body's frame in the parent's
    joints: tuple[Joint, ...]
    model: mujoco.MjModel

    def joint(self, name: str) -> Joint | None:
        """Return the joint of that name, if there is one."""
        return next((joint for joint in self.joints if joint.name == name), None)

    @property
    def quaternions(self) -> tuple[int, ...]:
        """First indices of quaternions in qpos."""
        start = {"free": 3, "ball": 0}
        return tuple(j.qpos + start[j.kind] for j in self.joints if j.kind in start)


def load_model(path: str | None = None) -> mujoco.MjModel:
    """Read a MuJoCo model (MJCF) of a humanoid; None means the packaged one."""
    file = HUMANOID if path is None else Path(path)
    if not file.is_file():
        raise UserError(f"'{file}': no such file. It should be a MuJoCo model (.xml).")
    try:
        return mujoco.MjModel.from_xml_path(str(file))
    except ValueError as error:
        raise UserError(f"'{file}' is no model MuJoCo can read: {error}") from error


def describe(model: mujoco.MjModel) -> Skeleton:
    """Return the skeleton of a model."""
    skeleton = Skeleton(
        bodies=tuple(model.body(i).name for i in range(1, model.nbody)),
        parents=tuple(int(parent) - 1 for parent in model.body_parentid[1:]),
        offsets=model.body_pos[1:].copy(),
        rotations=model.body_quat[1:].copy(),
        joints=tuple(_joint(model, i) for i in range(model.njnt)),
        model=model,
    )
    kinds = [joint.kind for joint in skeleton.joints]
    if not kinds or kinds[0] != "free" or kinds.count("free") != 1:
        first = f"'{skeleton.joints[0].name}' is a {kinds[0]}" if kinds else "there is none"
        raise UserError(
            "A humanoid needs a free joint at its root, before all others and only one: "
            f"of this model's joints, the first should be it, but {first}."
        )
    return skeleton


def _joint(model: mujoco.MjModel, i: int) -> Joint:
    limited = bool(model.jnt_limited[i])
    return Joint(
        name=model.joint(i).name,
        kind=_KINDS[int(model.jnt_type[i])],
        body=int(model.jnt_bodyid[i]) - 1,
        qpos=int(model.jnt_qposadr[i]),
        dof=int(model.jnt_dofadr[i]),
        axis=model.jnt_axis[i].copy(),
        anchor=model.jnt_pos[i].copy(),
        zero=float(model.qpos0[model.jnt_qposadr[i]]),
        limits=(float(model.jnt_range[i, 0]), float(model.jnt_range[i, 1])) if limited else None,
    )


def forward_kinematics(skeleton: Skeleton, qpos: Array) -> tuple[Array, Array]:
    """Return the positions [..., J, 3] and rotations [..., J, 4] of all bodies in the world."""
    leading = qpos.shape[:-1]
    world = jnp.zeros((*leading, 3), qpos.dtype), _broadcast([1.0, 0.0, 0.0, 0.0], qpos)
    poses: list[tuple[Array, Array]] = []
    for body, parent in enumerate(skeleton.parents):
        base, frame = poses[parent] if parent >= 0 else world
        position = base + rotations.rotate(frame, _broadcast(skeleton.offsets[body], qpos))
        rotation = rotations.multiply(frame, _broadcast(skeleton.rotations[body], qpos))
        for joint in skeleton.joints:
            if joint.body == body:
                position, rotation = _moved(joint, qpos, position, rotation)
        poses.append((position, rotations.normalize(rotation)))
    return jnp.stack([p for p, _ in poses], -2), jnp.stack([r for _, r in poses], -2)


def _moved(joint: Joint, qpos: Array, position: Array, rotation: Array) -> tuple[Array, Array]:
    """Move a body's pose by one of its joints."""
    values = qpos[..., joint.columns]
    if joint.kind == "free":
        return values[..., :3], rotations.normalize(values[..., 3:])
    axis, anchor = _broadcast(joint.axis, qpos), _broadcast(joint.anchor, qpos)
    if joint.kind == "slide":
        return position + rotations.rotate(rotation, axis) * (values - joint.zero), rotation
    # The anchor stays fixed while the body rotates about it.
    fixed = position + rotations.rotate(rotation, anchor)
    if joint.kind == "ball":
        joint_rotation = rotations.normalize(values)
    else:
        joint_rotation = rotations.from_axis_angle(axis, values[..., 0] - joint.zero)
    rotation = rotations.multiply(rotation, joint_rotation)
    return fixed - rotations.rotate(rotation, anchor), rotation


def _broadcast(values: Sequence[float] | np.ndarray, like: Array) -> Array:
    """Give constants [n] the leading axes of `like`."""
    constant = jnp.asarray(values, like.dtype)
    return jnp.broadcast_to(constant, (*like.shape[:-1], *constant.shape))


def joint_angles(skeleton: Skeleton, qpos: Array) -> Array:
    """Return the angles of the joints after the root, [..., nv - 6], in the order of qvel.

    Of a ball joint these are the components of its exponential map, which servos measure.
    """
    parts = [
        rotations.to_exp_map(rotations.normalize(qpos[..., joint.columns]))
        if joint.kind == "ball"
        else qpos[..., joint.columns]
        for joint in skeleton.joints[1:]
    ]
    return jnp.concatenate(parts, -1)
