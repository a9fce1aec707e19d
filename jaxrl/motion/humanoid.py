"""A humanoid under servo control: from poses and targets to what its bodies do.

Of MuJoCo's state only what the next step reads is carried: where everything is, how fast it moves,
and the last accelerations, from which the contact solver sets out.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# MuJoCo is compiled and says nothing of its types.

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

with contextlib.redirect_stdout(io.StringIO()):  # it names what it could also be run by
    from mujoco import mjx


class Pose(struct.PyTreeNode):
    """The physical state of one humanoid."""

    qpos: Array
    qvel: Array
    warmstart: Array  # the accelerations of the last step


class Humanoid:
    """One humanoid, moved `fps` times a second in `substeps` steps of physics."""

    def __init__(self, model: mujoco.MjModel, fps: float, substeps: int):
        if model.na:
            raise UserError("A humanoid's actuators act at once: leave out their time constants.")
        model = damped_implicitly(model, 1.0 / (fps * substeps))
        self.model, self.substeps = model, substeps
        self.skeleton = skeleton.describe(model)
        self.servos = _servos(model)  # which of the joints' angles each actuator holds
        self.lag = _lag(model)  # seconds that each actuator follows behind its target
        self.low, self.high = model.actuator_ctrlrange.T.astype(np.float32)
        rest = self.angles(jnp.asarray(model.qpos0, jnp.float32))
        self.rest = np.clip(rest, self.low, self.high)  # what they hold in the model's own pose
        self._physics = mjx.put_model(model)

    @property
    def num_actuators(self) -> int:
        """How many numbers a target has."""
        return len(self.servos)

    def start(self, qpos: Array, qvel: Array) -> Pose:
        """Return the state at rest of forces."""
        return Pose(qpos, qvel, jnp.zeros_like(qvel))

    def angles(self, qpos: Array) -> Array:
        """Return what the actuators measure in a pose, [nu]."""
        return skeleton.joint_angles(self.skeleton, qpos)[..., self.servos]

    def aim(self, qpos: Array, qvel: Array) -> Array:
        """Return what servos aim at to be in a moving pose: damped, they lag behind by as much."""
        return self.angles(qpos) + self.lag * qvel[..., 6:][..., self.servos]

    def move(self, pose: Pose, target: Array) -> tuple[Pose, Array]:
        """Hold a target for one control step; return the power spent at its end, in watts."""
        data = self._data(pose).replace(ctrl=jnp.clip(target, self.low, self.high))

        def once(data: mjx.Data, _: None) -> tuple[mjx.Data, None]:
            return mjx.step(self._physics, data), None

        data, _ = jax.lax.scan(once, data, length=self.substeps)
        power = jnp.sum(jnp.abs(data.qfrc_actuator * data.qvel))
        return Pose(data.qpos, data.qvel, data.qacc_warmstart), power

    def body_motion(self, pose: Pose) -> Reference:
        """Return what the bodies do, in the same terms as a clip does."""
        data = self._data(pose)
        for part in (mjx.kinematics, mjx.com_pos, mjx.com_vel):
            data = part(self._physics, data)
        spin, drift = data.cvel[1:, :3], data.cvel[1:, 3:]
        # Speeds are those of the centre of mass, as if the bodies' frames were fixed to it.
        arm = data.xpos[1:] - data.subtree_com[self._roots]
        velocity = drift + jnp.cross(spin, arm)
        return Reference(pose.qpos, pose.qvel, data.xpos[1:], data.xquat[1:], velocity, spin)

    def places(self, qpos: Array) -> Array:
        """Return where the bodies of a pose are, [J, 3]."""
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
    """Return which of the joints' angles (after the root) each actuator holds."""
    return np.array([_servo(model, i) for i in range(model.nu)], np.int32)


def _lag(model: mujoco.MjModel) -> np.ndarray:
    """Return damping over stiffness of each servo."""
    stiffness, damping = -model.actuator_biasprm[:, 1], -model.actuator_biasprm[:, 2]
    return (damping / stiffness).astype(np.float32)


def _servo(model: mujoco.MjModel, i: int) -> int:
    name = model.actuator(i).name or f"number {i}"
    joint, gear = int(model.actuator_trnid[i, 0]), model.actuator_gear[i]
    ball = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_BALL
    axes = np.flatnonzero(gear[: 3 if ball else 1])
    on_joint = model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT
    on_joint = on_joint and model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_FREE
    stiffness = model.actuator_gainprm[i, 0]  # of a motor, nothing pulls it back
    aims = stiffness > 0 and model.actuator_biasprm[i, 1] == -stiffness
    if not on_joint or not aims or len(axes) != 1 or gear[axes[0]] != 1.0:
        raise UserError(
            f"Actuator '{name}': a humanoid's actuators are position servos on its joints (but not "
            "its root), each with one 1 in its gear."
        )
    if not model.actuator_ctrllimited[i]:
        raise UserError(f"Actuator '{name}' needs a ctrlrange: actions are scaled by it.")
    return int(model.jnt_dofadr[joint]) - 6 + int(axes[0])
