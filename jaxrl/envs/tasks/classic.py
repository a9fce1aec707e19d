"""Classic control tasks with Gymnasium's dynamics, written for Brax's environment interface.

Both are single environments (vmap outside) without auto-reset; the outer layer applies the time
limit `episode_length`.
"""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
from brax.envs import base
from flax import struct

from jaxrl.envs import env_adapter


def _first_state(joints: Any, obs: jax.Array) -> base.State:
    """Wrap a start state; Brax names its own physics state as the type, but takes any pytree."""
    # Separate arrays: a caller that donates the state must not pass one buffer twice.
    reward, done = jnp.zeros(2, jnp.float32)
    return base.State(pipeline_state=joints, obs=obs, reward=reward, done=done)


class CartPoleState(struct.PyTreeNode):
    """Hold the joint state; angles in radians from upright, positions in metres."""

    x: jax.Array
    x_dot: jax.Array
    theta: jax.Array
    theta_dot: jax.Array


class CartPole(base.Env):
    """Balance a pole on a cart by pushing left (0) or right (1), as in Gymnasium CartPole-v1.

    Every step's reward is 1; the episode terminates once the cart or the pole leaves its range.
    """

    episode_length = 500
    num_actions = 2
    observation_size: int = 4
    action_size: int = num_actions
    backend: str = "jax"

    gravity = 9.8
    cart_mass = 1.0
    pole_mass = 0.1
    half_pole_length = 0.5
    force = 10.0
    dt = 0.02
    max_x = 2.4
    max_theta = math.radians(12)
    max_start = 0.05

    def reset(self, rng: jax.Array) -> base.State:
        """Start near rest at the centre."""
        values = jax.random.uniform(rng, (4,), jnp.float32, -self.max_start, self.max_start)
        joints = CartPoleState(*values)
        return _first_state(joints, self._observe(joints))

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Advance one Euler step under the chosen push."""
        joints = cast(CartPoleState, state.pipeline_state)
        force = jnp.where(action == 1, self.force, -self.force)
        x_acc, theta_acc = self._accelerations(joints, force)
        # Explicit Euler: positions move with the old velocities, as in the original task.
        joints = CartPoleState(
            x=joints.x + self.dt * joints.x_dot,
            x_dot=joints.x_dot + self.dt * x_acc,
            theta=joints.theta + self.dt * joints.theta_dot,
            theta_dot=joints.theta_dot + self.dt * theta_acc,
        )
        failed = (jnp.abs(joints.x) > self.max_x) | (jnp.abs(joints.theta) > self.max_theta)
        return dataclasses.replace(
            state,
            pipeline_state=joints,
            obs=self._observe(joints),
            reward=jnp.ones((), jnp.float32),
            done=failed.astype(jnp.float32),
        )

    @property
    def mj_model(self) -> Any:
        """The model to render."""
        return env_adapter.load_model("cartpole")

    def render_state(self, state: base.State) -> dict[str, jax.Array]:
        """Return the joints of that model."""
        joints = cast(CartPoleState, state.pipeline_state)
        return {"qpos": jnp.stack([joints.x, joints.theta])}

    def _accelerations(
        self, joints: CartPoleState, force: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Solve the frictionless equations of motion for cart and pole acceleration."""
        mass = self.cart_mass + self.pole_mass
        moment = self.pole_mass * self.half_pole_length
        sin, cos = jnp.sin(joints.theta), jnp.cos(joints.theta)
        push = (force + moment * joints.theta_dot**2 * sin) / mass
        inertia = self.half_pole_length * (4.0 / 3.0 - self.pole_mass * cos**2 / mass)
        theta_acc = (self.gravity * sin - cos * push) / inertia
        return push - moment * theta_acc * cos / mass, theta_acc

    def _observe(self, joints: CartPoleState) -> jax.Array:
        return jnp.stack([joints.x, joints.x_dot, joints.theta, joints.theta_dot])


class PendulumState(struct.PyTreeNode):
    """Hold the joint state; theta is 0 upright and is not wrapped."""

    theta: jax.Array
    theta_dot: jax.Array


class Pendulum(base.Env):
    """Swing a torque-limited pendulum upright, as in Gymnasium Pendulum-v1.

    The action in [-1, 1] is scaled to the torque range; the episode never terminates.
    """

    episode_length = 200
    observation_size: int = 3
    action_size: int = 1
    backend: str = "jax"

    gravity = 10.0
    mass = 1.0
    length = 1.0
    dt = 0.05
    max_torque = 2.0
    max_speed = 8.0
    max_start_theta = math.pi
    max_start_speed = 1.0

    def reset(self, rng: jax.Array) -> base.State:
        """Start at any angle with a small speed."""
        unit = jax.random.uniform(rng, (2,), jnp.float32, -1.0, 1.0)
        joints = PendulumState(unit[0] * self.max_start_theta, unit[1] * self.max_start_speed)
        return _first_state(joints, self._observe(joints))

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """Advance one semi-implicit Euler step; the cost is that of the state before it."""
        joints = cast(PendulumState, state.pipeline_state)
        torque = self.max_torque * jnp.clip(action[0].astype(jnp.float32), -1.0, 1.0)
        angle = jnp.mod(joints.theta + math.pi, 2 * math.pi) - math.pi
        cost = angle**2 + 0.1 * joints.theta_dot**2 + 0.001 * torque**2
        theta_acc = 1.5 * self.gravity / self.length * jnp.sin(joints.theta)
        theta_acc += 3.0 / (self.mass * self.length**2) * torque
        speed = joints.theta_dot + theta_acc * self.dt
        speed = jnp.clip(speed, -self.max_speed, self.max_speed)
        joints = PendulumState(joints.theta + speed * self.dt, speed)
        return dataclasses.replace(
            state,
            pipeline_state=joints,
            obs=self._observe(joints),
            reward=-cost,
            done=jnp.zeros((), jnp.float32),
        )

    @property
    def mj_model(self) -> Any:
        """The model to render."""
        return env_adapter.load_model("pendulum")

    def render_state(self, state: base.State) -> dict[str, jax.Array]:
        """Return the joint of that model."""
        return {"qpos": cast(PendulumState, state.pipeline_state).theta[None]}

    def _observe(self, joints: PendulumState) -> jax.Array:
        return jnp.stack([jnp.cos(joints.theta), jnp.sin(joints.theta), joints.theta_dot])
