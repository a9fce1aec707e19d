"""An arm that moves a cube with a suction cup: from commands to the motion of bodies.

Of MuJoCo's state only what the next step reads is carried: positions, velocities, and the last
accelerations, from which the contact solver is warm-started.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# MuJoCo is compiled and has no type stubs.

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct
from mujoco import mjx

from jaxrl.envs.tasks.pick_place.kinematics import Chain, relative_to
from jaxrl.types import Array

MODEL = Path(__file__).parent.parent / "assets" / "pick_place.xml"
HOME = np.float32([0.0, 0.433, 0.0, -1.766, 0.0, 0.942, 0.0])  # cup 0.3 m above the table
JOINTS = len(HOME)
TOUCHING = 0.027  # metres from the cup to the centre of a cube that it holds
# The stages of MuJoCo's forward dynamics after kinematics.
_POSITION = (
    mjx.com_pos,
    mjx.crb,
    mjx.factor_m,
    mjx.collision,
    mjx.make_constraint,
    mjx.transmission,
)
_FORCES = (mjx.fwd_velocity, mjx.fwd_actuation, mjx.fwd_acceleration, mjx.solve, mjx.implicit)


class Pose(struct.PyTreeNode):
    """The physical state: arm first, then the cube's position and rotation."""

    qpos: Array
    qvel: Array
    warmstart: Array  # accelerations of the last step


class Arm:
    """Arm, table and cube, controlled at `fps` Hz with `substeps` physics steps each."""

    def __init__(self, fps: float, substeps: int):
        self.model = mujoco.MjModel.from_xml_path(str(MODEL))
        self.model.opt.timestep = 1.0 / (fps * substeps)
        self.substeps = substeps
        self.low, self.high = self.model.jnt_range[:JOINTS].T.astype(np.float32)
        self.max_speed = self.model.actuator_ctrlrange[:, 1].astype(np.float32)
        self._tip, self._flange = self.model.site("tip").id, self.model.body("link_7").id
        self._chain = Chain(self.model)
        self._physics = mjx.put_model(self.model)

    def start(self, joints: Array, cube: Array) -> Pose:
        """Return a state at rest, with a level cube at a position."""
        level = jnp.asarray([1.0, 0.0, 0.0, 0.0])
        still = jnp.zeros(self.model.nv)
        return Pose(jnp.concatenate([joints, cube, level]), still, jnp.zeros_like(still))

    def grip(self, pose: Pose) -> Array:
        """Return the pose that the cube would be held in if it were grasped now, [7].

        It is relative to the flange: the cube keeps its rotation and is moved to touch the cup.
        """
        data = self._chain.kinematics(self._data(pose))
        flange, tip = data.xmat[self._flange], data.site_xpos[self._tip]
        away = self.cube(pose) - tip
        away = away / jnp.maximum(jnp.linalg.norm(away), 1e-6)
        place = flange.T @ (tip + TOUCHING * away - data.xpos[self._flange])
        return jnp.concatenate([place, relative_to(data.xquat[self._flange], pose.qpos[-4:])])

    def move(self, pose: Pose, speeds: Array, suction: Array, grip: Array) -> Pose:
        """Apply joint velocities for one control step, with the suction on or off."""
        weld = self._physics.eq_data.at[0, 3:10].set(grip)
        physics = self._physics.replace(eq_data=weld)
        data = self._data(pose).replace(eq_active=suction[None])

        def once(data: mjx.Data, _: None) -> tuple[mjx.Data, None]:
            data = data.replace(ctrl=self._within_range(data.qpos[:JOINTS], speeds))
            data = self._chain.kinematics(data)
            for part in (*_POSITION, *_FORCES):
                data = part(physics, data)
            return data, None

        data, _ = jax.lax.scan(once, data, length=self.substeps)
        return Pose(data.qpos, data.qvel, data.qacc_warmstart)

    def tip(self, pose: Pose) -> Array:
        """Return the position of the cup."""
        return self._chain.kinematics(self._data(pose)).site_xpos[self._tip]

    def cube(self, pose: Pose) -> Array:
        """Return the position of the cube."""
        return pose.qpos[JOINTS : JOINTS + 3]

    def _within_range(self, joints: Array, speeds: Array) -> Array:
        """Limit velocities that would leave a joint's range within a tenth of a second."""
        ahead = 0.1
        slowest, fastest = (self.low - joints) / ahead, (self.high - joints) / ahead
        return jnp.clip(jnp.clip(speeds, slowest, fastest), -self.max_speed, self.max_speed)

    def _data(self, pose: Pose) -> mjx.Data:
        return mjx.make_data(self._physics).replace(
            qpos=pose.qpos, qvel=pose.qvel, qacc_warmstart=pose.warmstart
        )
