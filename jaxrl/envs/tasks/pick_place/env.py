"""Pick up a cube and bring it to a target: a Brax environment.

The action is seven joint velocities and the suction of a cup. The cup grasps a cube close to it
while its action is above 0, and releases it below -0.5. An episode terminates when the held cube
has been at the target for some steps, or when it is out of reach; the time limit truncates it.
"""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.config import PickConfig
from jaxrl.envs.tasks.pick_place import reward
from jaxrl.envs.tasks.pick_place.arm import HOME, JOINTS, Arm, Pose
from jaxrl.envs.tasks.pick_place.reward import RewardTerms, Snapshot, Task
from jaxrl.types import Array, Key

FPS = 25.0  # actions per second
RELEASE = -0.5  # suction below this releases the cube
OUT_OF_REACH = 1.0  # metres from the arm's base
START_NOISE = 0.03  # radians around home in which every joint starts
FIRST_LEVEL = 0.1  # of a curriculum: not 0, because the normaliser needs some spread


class _Area(NamedTuple):
    """A box of positions between `low` and `high`, with a usual one."""

    usual: tuple[float, float, float]
    low: tuple[float, float, float]
    high: tuple[float, float, float]

    def sample(self, key: Key, level: Array | float) -> Array:
        """Sample a position; a level below 1 shrinks the box around the usual position."""
        usual, low, high = (jnp.asarray(corner) for corner in self)
        uniform = low + (high - low) * jax.random.uniform(key, (3,), jnp.float32)
        return usual + level * (uniform - usual)


CUBE = _Area((0.5, -0.15, 0.025), (0.35, -0.3, 0.025), (0.65, 0.3, 0.025))
TARGET = _Area((0.5, 0.15, 0.15), (0.35, -0.3, 0.05), (0.65, 0.3, 0.3))


class PickPlace(base.Env):
    """An arm, a cube and a target, placed by `config.difficulty`."""

    backend: str = "mjx"
    episode_length = 150
    action_size: int = JOINTS + 1
    observation_size: int = 2 * JOINTS + 17

    def __init__(self, config: PickConfig):
        self.config, self.arm = config, Arm(FPS, config.substeps)

    @property
    def mj_model(self) -> Any:
        """The model to render."""
        return self.arm.model

    @property
    def dt(self) -> float:
        """Seconds per action."""
        return 1.0 / FPS

    def render_state(self, state: base.State) -> dict[str, Array]:
        """Return the pose to render, with the target as a mocap body."""
        pose = cast(Pose, state.pipeline_state)
        quat = jnp.asarray([[1.0, 0.0, 0.0, 0.0]])
        return {"qpos": pose.qpos, "mocap_pos": state.info["target"][None], "mocap_quat": quat}

    def start_position(self, state: base.State) -> Array:
        """Return the cube's first horizontal position, [2]."""
        return state.info["start"][:2]

    def first_curriculum(self) -> dict[str, np.ndarray] | tuple[()]:
        """Return the first spread of start states; () if it never changes."""
        if self.config.difficulty != "curriculum":
            return ()
        return {"level": np.asarray(FIRST_LEVEL, np.float32)}

    def last_curriculum(self) -> dict[str, np.ndarray] | tuple[()]:
        """Return the full spread, for evaluations."""
        return jax.tree.map(np.ones_like, self.first_curriculum())

    def update_curriculum(
        self, curriculum: dict[str, np.ndarray], metrics: Mapping[str, float]
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Widen the spread after a cycle with enough success; it never shrinks."""
        level = float(curriculum["level"])
        if metrics.get("rollout/success_rate", 0.0) > self.config.raise_at:
            level = min(1.0, level + self.config.raise_by)
        return {"level": np.asarray(level, np.float32)}, {"level": level}

    def reset(self, rng: Key, curriculum: dict[str, Array] | None = None) -> base.State:
        """Start near home, with cube and target sampled by the difficulty."""
        key_cube, key_target, key_joints = jax.random.split(rng, 3)
        spread = curriculum["level"] if curriculum else 1.0
        difficulty = self.config.difficulty
        cube = CUBE.sample(key_cube, 0.0 if difficulty == "easy" else spread)
        target = TARGET.sample(key_target, 0.0 if difficulty in ("easy", "medium") else spread)
        near_home = jax.random.uniform(
            key_joints, (JOINTS,), jnp.float32, -START_NOISE, START_NOISE
        )
        return self.start(HOME + near_home, cube, target)

    def start(self, joints: Array, cube: Array, target: Array) -> base.State:
        """Start with these joint angles and positions of cube and target."""
        pose = self.arm.start(joints, cube)
        held = jnp.zeros((), bool)
        now = Snapshot(self.arm.tip(pose), cube, held)
        metrics = {f"reward_{name}": jnp.zeros(()) for name in RewardTerms._fields}
        metrics |= {name: jnp.zeros(()) for name in ("success", "held", "drops")}
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(pose, now, Task(target, cube), jnp.zeros(())),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics=metrics,
            info={"target": target, "start": cube, "tip": now.tip, "held": held}
            | {"steps_at_target": jnp.zeros(()), "grip": self.arm.grip(pose)},
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Move for one control step, and compute the reward."""
        info, pose = state.info, cast(Pose, state.pipeline_state)
        task = Task(info["target"], info["start"])
        before = Snapshot(info["tip"], self.arm.cube(pose), info["held"])
        action = jnp.clip(action, -1.0, 1.0)
        held = self._holds(before, action[JOINTS])
        grip = jnp.where(before.held, info["grip"], self.arm.grip(pose))
        pose = self.arm.move(pose, action[:JOINTS] * self.arm.max_speed, held, grip)
        now = Snapshot(self.arm.tip(pose), self.arm.cube(pose), held)
        at_target = reward.at_target(self.config, now, task)
        steps = jnp.where(at_target, info["steps_at_target"] + 1.0, 0.0)
        success = steps >= self.config.hold
        lost = jnp.sum(jnp.square(now.cube)) > OUT_OF_REACH**2
        rewards = reward.terms(self.config, before, now, task, success, lost)
        metrics = {f"reward_{name}": value for name, value in rewards._asdict().items()}
        metrics |= {"success": success, "held": held, "drops": before.held & ~held}
        return dataclasses.replace(
            state,
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(pose, now, task, steps),
            reward=sum(rewards),
            done=(success | lost).astype(jnp.float32),
            metrics={k: jnp.asarray(v, jnp.float32) for k, v in metrics.items()},
            info=info
            | {"tip": now.tip, "held": held & ~success, "steps_at_target": steps, "grip": grip},
        )

    def _holds(self, before: Snapshot, suction: Array) -> Array:
        """Return whether the cup holds the cube in this step."""
        near = reward.distance(before.tip, before.cube) < self.config.attach_distance
        return jnp.where(before.held, suction >= RELEASE, near & (suction > 0.0))

    def _observe(self, pose: Pose, now: Snapshot, task: Task, steps: Array) -> Array:
        """Return joint angles and velocities, positions, offsets, grasp and steps at the target."""
        return jnp.concatenate(
            [
                pose.qpos[:JOINTS],
                pose.qvel[:JOINTS],
                now.tip,
                now.cube,
                task.target,
                now.cube - now.tip,
                task.target - now.cube,
                jnp.stack([now.held.astype(jnp.float32), steps / self.config.hold]),
            ]
        )
