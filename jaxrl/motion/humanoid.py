"""A humanoid under servo control: from poses and servo targets to the motion of its bodies.

Of MuJoCo's state only what the next step reads is carried: positions, velocities, and the last
accelerations, from which the contact solver is warm-started.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# MuJoCo is compiled and has no type stubs.

import contextlib
import copy
import io

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from jaxrl.errors import UserError
from jaxrl.motion import skeleton
from jaxrl.motion.library import Reference
from jaxrl.types import Array

with contextlib.redirect_stdout(io.StringIO()):  # it prints notices of missing backends
    from mujoco import mjx


class Pose(struct.PyTreeNode):
    """The physical state of one humanoid."""

    qpos: Array
    qvel: Array
    warmstart: Array  # accelerations of the last step


class Humanoid:
    """One humanoid, controlled at `fps` Hz with `substeps` physics steps per control step."""

    def __init__(self, model: mujoco.MjModel, fps: float, substeps: int):
        if model.na:
            raise UserError(
                "A humanoid's actuators must have no dynamics: leave out their time constants."
            )
        model = damped_implicitly(model, 1.0 / (fps * substeps))
        self.model, self.substeps = model, substeps
        self.skeleton = skeleton.describe(model)
        self.servos = _servos(model)  # index of the joint angle that each actuator controls
        self.servo_lag = _servo_lag(model)  # seconds by which each actuator trails its target
        self.low, self.high = model.actuator_ctrlrange.T.astype(np.float32)
        rest = self.angles(jnp.asarray(model.qpos0, jnp.float32))
        self.rest = np.clip(rest, self.low, self.high)  # servo targets of the model's rest pose
        self._physics = mjx.put_model(model)

    @property
    def num_actuators(self) -> int:
        """Size of a servo target."""
        return len(self.servos)

    def start(self, qpos: Array, qvel: Array) -> Pose:
        """Return a state without contact accelerations."""
        return Pose(qpos, qvel, jnp.zeros_like(qvel))

    def angles(self, qpos: Array) -> Array:
        """Return the joint angles that the actuators control, [nu]."""
        return skeleton.joint_angles(self.skeleton, qpos)[..., self.servos]

    def servo_target(self, qpos: Array, qvel: Array) -> Array:
        """Return servo targets for a moving pose; damped servos trail their target."""
        return self.angles(qpos) + self.servo_lag * qvel[..., 6:][..., self.servos]

    def move(self, pose: Pose, target: Array) -> tuple[Pose, Array]:
        """Apply a servo target for one control step; also return the power at its end, in watts."""
        data = self._data(pose).replace(ctrl=jnp.clip(target, self.low, self.high))

        def once(data: mjx.Data, _: None) -> tuple[mjx.Data, None]:
            return mjx.step(self._physics, data), None

        data, _ = jax.lax.scan(once, data, length=self.substeps)
        power = jnp.sum(jnp.abs(data.qfrc_actuator * data.qvel))
        return Pose(data.qpos, data.qvel, data.qacc_warmstart), power

    def body_motion(self, pose: Pose) -> Reference:
        """Return the motion of the bodies, as a library describes it."""
        data = self._data(pose)
        for part in (mjx.kinematics, mjx.com_pos, mjx.com_vel):
            data = part(self._physics, data)
        spin, drift = data.cvel[1:, :3], data.cvel[1:, 3:]
        # MuJoCo gives velocities at the centre of mass: shift them to the bodies' frames.
        arm = data.xpos[1:] - data.subtree_com[self._roots]
        velocity = drift + jnp.cross(spin, arm)
        return Reference(pose.qpos, pose.qvel, data.xpos[1:], data.xquat[1:], velocity, spin)

    def body_positions(self, qpos: Array) -> Array:
        """Return the positions of the bodies in a pose, [J, 3]."""
        data = mjx.make_data(self._physics).replace(qpos=qpos)
        return mjx.kinematics(self._physics, data).xpos[1:]

    @property
    def _roots(self) -> np.ndarray:
        return self.model.body_rootid[1:]

    def _data(self, pose: Pose) -> mjx.Data:
        return mjx.make_data(self._physics).replace(
            qpos=pose.qpos, qvel=pose.qvel, qacc_warmstart=pose.warmstart
        )


def damped_implicitly(model: mujoco.MjModel, timestep: float) -> mujoco.MjModel:
    """Return a copy of a model whose damping is part of its inertia, for plain Euler steps.

        M (v' − v) / h = f − D v'   is the same as   (M + h D) (v' − v) / h = f − D v

    so that stiff servos stay steady at large steps, also where their forces are clamped, without
    a second factorisation; and contacts are solved knowing the damping, by a single iteration.
    """
    model = copy.copy(model)
    model.opt.timestep = timestep
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    model.dof_armature += timestep * model.dof_damping
    dofs = 6 + _servos(model)
    np.add.at(model.dof_armature, dofs, timestep * -model.actuator_biasprm[:, 2])
    return model


def _servos(model: mujoco.MjModel) -> np.ndarray:
    """Return which of the joints' angles (after the root) each actuator controls."""
    return np.array([_servo(model, i) for i in range(model.nu)], np.int32)


def _servo_lag(model: mujoco.MjModel) -> np.ndarray:
    """Return damping / stiffness of each servo, in seconds."""
    stiffness, damping = -model.actuator_biasprm[:, 1], -model.actuator_biasprm[:, 2]
    return (damping / stiffness).astype(np.float32)


def _servo(model: mujoco.MjModel, i: int) -> int:
    name = model.actuator(i).name or f"#{i}"
    joint, gear = int(model.actuator_trnid[i, 0]), model.actuator_gear[i]
    ball = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_BALL
    axes = np.flatnonzero(gear[: 3 if ball else 1])
    on_joint = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT
    on_joint = on_joint and model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_FREE
    stiffness = model.actuator_gainprm[i, 0]  # a motor has none
    is_servo = stiffness > 0 and model.actuator_biasprm[i, 1] == -stiffness
    if not on_joint or not is_servo or len(axes) != 1 or gear[axes[0]] != 1.0:
        raise UserError(
            f"Actuator '{name}': a humanoid's actuators are position servos on its joints (but not "
            "its root), each with one 1 in its gear."
        )
    if not model.actuator_ctrllimited[i]:
        raise UserError(f"Actuator '{name}' needs a ctrlrange: actions are scaled by it.")
    return int(model.jnt_dofadr[joint]) - 6 + int(axes[0])
