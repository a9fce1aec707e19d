"""The mirror image of a motion: left and right exchanged, for models that are symmetric.

The mirror is the plane y = 0. Positions and velocities are reflected, rotations and angular
velocities are conjugated by the reflection, and each body of one side moves as its partner on the
other side did. Everything is a permutation with signs, so that mirroring twice changes nothing.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import re
from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from jaxrl.errors import UserError
from jaxrl.motion.clip import Clip, Plan
from jaxrl.motion.library import Reference
from jaxrl.motion.skeleton import Joint, Skeleton
from jaxrl.types import Array

_VECTOR = np.array([1.0, -1.0, 1.0], np.float32)
_SPIN = -_VECTOR  # a rotation about a mirrored axis turns the other way round
_QUATERNION = np.array([1.0, -1.0, 1.0, -1.0], np.float32)
_SIDE = re.compile(r"left|right|(?<![a-z])[lr](?![a-z])", re.IGNORECASE)
_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}
_TOLERANCE = 1e-5  # metres or kilograms, and of 1 - cos of half the angle between rotations


class _Exchange(NamedTuple):
    """A vector's entries exchanged, with signs: y = sign · x[source] + offset."""

    source: np.ndarray
    sign: np.ndarray
    offset: np.ndarray

    def __call__(self, x: Any) -> Any:
        """Return exchanged vectors [..., n], of NumPy or of JAX as they are given."""
        return _times(self.sign, x[..., self.source]) + _like(self.offset, x)


def _like(constant: np.ndarray, x: Any) -> np.ndarray:
    """Give constants [n] as many axes as x [..., n] has."""
    return constant.reshape((1,) * (x.ndim - 1) + (-1,))


def _times(sign: np.ndarray, x: Any) -> Any:
    return _like(sign, x) * x


class Mirror(NamedTuple):
    """How the poses, velocities, servo targets and bodies of a model are mirrored."""

    bodies: np.ndarray  # int [J], each body's partner
    qpos: _Exchange
    qvel: _Exchange
    targets: _Exchange  # of servos, and offsets of targets

    def reference(self, motion: Reference) -> Reference:
        """Return the mirror image of motions [...]."""
        return Reference(
            qpos=self.qpos(motion.qpos),
            qvel=self.qvel(motion.qvel),
            position=_times(_VECTOR, motion.position[..., self.bodies, :]),
            rotation=_times(_QUATERNION, motion.rotation[..., self.bodies, :]),
            velocity=_times(_VECTOR, motion.velocity[..., self.bodies, :]),
            spin=_times(_SPIN, motion.spin[..., self.bodies, :]),
        )

    def where(self, mirrored: Array, motion: Reference) -> Reference:
        """Return motions [...] or, where `mirrored` (one flag for all) is true, their image."""
        both = zip(self.reference(motion), motion, strict=True)
        return Reference(*(jnp.where(mirrored, image, plain) for image, plain in both))

    def clip(self, clip: Clip) -> Clip:
        """Return the mirror image of a clip, and of its plan if it has one."""
        plan = clip.plan
        if plan is not None:
            qpos, qvel = self.qpos(plan.qpos), self.qvel(plan.qvel)
            plan = Plan(qpos, qvel, self.targets(plan.feedforward), plan.substeps)
        return clip._replace(qpos=self.qpos(clip.qpos), plan=plan)


def build(skeleton: Skeleton, servos: np.ndarray) -> Mirror:
    """Return the mirror of a model; raise UserError if its sides are not each other's image.

    `servos` says which of the joints' angles, after the root, each actuator controls.
    """
    partners = [skeleton.bodies.index(_partner(name, skeleton)) for name in skeleton.bodies]
    joints = [(joint, _paired(joint, partners, skeleton)) for joint in skeleton.joints]
    qpos, qvel = _of_poses(joints, skeleton), _of_velocities(joints, skeleton)
    mirror = Mirror(np.array(partners), qpos, qvel, _of_targets(qvel, servos))
    _check(mirror, skeleton)
    return mirror


def _partner(name: str, skeleton: Skeleton) -> str:
    """Return the body of the other side: the one whose name has left for right; or itself."""

    def other(found: re.Match[str]) -> str:
        side = found.group()
        swapped = _OTHER[side.lower()]
        if side.isupper():
            return swapped.upper()
        return swapped.capitalize() if side[0].isupper() else swapped

    swapped = _SIDE.sub(other, name)
    return swapped if swapped in skeleton.bodies else name


def _paired(joint: Joint, partners: list[int], skeleton: Skeleton) -> Joint:
    """Return the joint of the partner's body at the same place in its order."""
    own, others = (
        [each for each in skeleton.joints if each.body == body]
        for body in (joint.body, partners[joint.body])
    )
    if [each.kind for each in own] != [each.kind for each in others]:
        raise _asymmetric(skeleton.bodies[joint.body], skeleton)
    return others[own.index(joint)]


def _sign(joint: Joint, partner: Joint) -> float:
    """Return 1 or -1: the mirrored motion of a hinge or slide, along its partner's axis."""
    mirrored = (_SPIN if joint.kind == "hinge" else _VECTOR) * joint.axis
    return 1.0 if float(mirrored @ partner.axis) > 0 else -1.0


def _of_poses(joints: list[tuple[Joint, Joint]], skeleton: Skeleton) -> _Exchange:
    found = _empty(skeleton.model.nq)
    for joint, partner in joints:
        to, columns = partner.columns, np.arange(joint.columns.start, joint.columns.stop)
        found.source[to] = columns
        if joint.kind == "free":
            found.sign[to] = np.concatenate([_VECTOR, _QUATERNION])
        elif joint.kind == "ball":
            found.sign[to] = _QUATERNION
        else:
            sign = _sign(joint, partner)
            found.sign[to], found.offset[to] = sign, partner.zero - sign * joint.zero
    return found


def _of_velocities(joints: list[tuple[Joint, Joint]], skeleton: Skeleton) -> _Exchange:
    found = _empty(skeleton.model.nv)
    for joint, partner in joints:
        signs = {"free": np.concatenate([_VECTOR, _SPIN]), "ball": _SPIN}.get(joint.kind)
        sign = np.array([_sign(joint, partner)]) if signs is None else signs
        to = slice(partner.dof, partner.dof + len(sign))
        found.source[to] = joint.dof + np.arange(len(sign))
        found.sign[to] = sign
    return found


def _of_targets(qvel: _Exchange, servos: np.ndarray) -> _Exchange:
    """Return the exchange of servo targets, which are angles in the order of velocities."""
    dofs = 6 + np.asarray(servos)
    actuator = {int(dof): i for i, dof in enumerate(dofs)}
    index = [actuator.get(int(qvel.source[dof]), i) for i, dof in enumerate(dofs)]
    return _Exchange(np.array(index), qvel.sign[dofs], np.zeros(len(dofs), np.float32))


def _empty(size: int) -> _Exchange:
    zeros = np.zeros(size, np.float32)
    return _Exchange(np.zeros(size, int), zeros, zeros.copy())


def _check(mirror: Mirror, skeleton: Skeleton) -> None:
    """Compare the bodies of a random pose's mirror image with their partners' mirror images."""
    model = skeleton.model
    data, image, qpos = mujoco.MjData(model), mujoco.MjData(model), model.qpos0.copy()
    mujoco.mj_integratePos(model, qpos, np.random.default_rng(0).normal(size=model.nv), 0.5)
    data.qpos[:], image.qpos[:] = qpos, mirror.qpos(qpos)
    for each in (data, image):
        mujoco.mj_kinematics(model, each)
    partners, mass = mirror.bodies, model.body_mass[1:]
    off = np.abs(image.xpos[1:] - _VECTOR * data.xpos[1:][partners]).max(axis=1)
    turned = np.abs(np.sum(image.xquat[1:] * _QUATERNION * data.xquat[1:][partners], axis=1))
    heavier = np.abs(mass - mass[partners])
    bad = np.flatnonzero((off > _TOLERANCE) | (1.0 - turned > _TOLERANCE) | (heavier > _TOLERANCE))
    if len(bad):
        raise _asymmetric(skeleton.bodies[bad[0]], skeleton)


def _asymmetric(body: str, skeleton: Skeleton) -> UserError:
    return UserError(
        f"--motion.mirror: body '{body}' of this model is not the mirror image of "
        f"'{_partner(body, skeleton)}'; leave the flag out, or name the sides left and right."
    )
