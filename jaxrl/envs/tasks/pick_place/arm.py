"""An arm that moves a cube about with a suction cup: from commands to what the bodies do.

Of MuJoCo's state only what the next step reads is carried: where everything is, how fast it moves,
and the last accelerations, from which the contact solver sets out.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# MuJoCo is compiled and says nothing of its types.

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct
from mujoco import mjx

from jaxrl.envs.tasks.pick_place.kinematics import Chain, seen_from
from jaxrl.types import Array

MODEL = Path(__file__).parent.parent / "assets" / "pick_place.xml"
HOME = np.float32([0.0, 0.433, 0.0, -1.766, 0.0, 0.942, 0.0])  # cup 0.3 m above the table
JOINTS = len(HOME)
TOUCHING = 0.027  # metres from the mouth of the cup to the centre of a cube that it holds
# What MuJoCo computes of a state, once it is known where the bodies are.
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
    """The physical state: arm first, then the cube's place and rotation."""

    qpos: Array
    qvel: Array
    warmstart: Array  # the accelerations of the last step


class Arm:
    """Arm, table and cube, moved `fps` times a second in `substeps` steps of physics."""

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
        """Return a state at rest, the cube level at a place."""
        level = jnp.asarray([1.0, 0.0, 0.0, 0.0])
        still = jnp.zeros(self.model.nv)
        return Pose(jnp.concatenate([joints, cube, level]), still, jnp.zeros_like(still))

    def grip(self, pose: Pose) -> Array:
        """Return how the cube would be held if it were taken now: its place and rotation, [7].

        It is seen from the flange, keeps its rotation, and is drawn along until it touches the cup.
        """
        data = self._chain.placed(self._data(pose))
        flange, tip = data.xmat[self._flange], data.site_xpos[self._tip]
        away = self.cube(pose) - tip
        away = away / jnp.maximum(jnp.linalg.norm(away), 1e-6)
        place = flange.T @ (tip + TOUCHING * away - data.xpos[self._flange])
        return jnp.concatenate([place, seen_from(data.xquat[self._flange], pose.qpos[-4:])])

    def move(self, pose: Pose, speeds: Array, suction: Array, grip: Array) -> Pose:
        """Hold joint speeds for one control step, with the suction on or off."""
        weld = self._physics.eq_data.at[0, 3:10].set(grip)
        physics = self._physics.replace(eq_data=weld)
        data = self._data(pose).replace(eq_active=suction[None])

        def once(data: mjx.Data, _: None) -> tuple[mjx.Data, None]:
            data = data.replace(ctrl=self._within_range(data.qpos[:JOINTS], speeds))
            data = self._chain.placed(data)
            for part in (*_POSITION, *_FORCES):
                data = part(physics, data)
            return data, None

        data, _ = jax.lax.scan(once, data, length=self.substeps)
        return Pose(data.qpos, data.qvel, data.qacc_warmstart)

    def tip(self, pose: Pose) -> Array:
        """Return where the mouth of the cup is."""
        return self._chain.placed(self._data(pose)).site_xpos[self._tip]

    def cube(self, pose: Pose) -> Array:
        """Return where the cube's centre is."""
        return pose.qpos[JOINTS : JOINTS + 3]

    def _within_range(self, joints: Array, speeds: Array) -> Array:
        """Slow down where a joint would leave its range: a tenth of a second ahead."""
        ahead = 0.1
        slowest, fastest = (self.low - joints) / ahead, (self.high - joints) / ahead
        return jnp.clip(jnp.clip(speeds, slowest, fastest), -self.max_speed, self.max_speed)

    def _data(self, pose: Pose) -> mjx.Data:
        return mjx.make_data(self._physics).replace(
            qpos=pose.qpos, qvel=pose.qvel, qacc_warmstart=pose.warmstart
        )
