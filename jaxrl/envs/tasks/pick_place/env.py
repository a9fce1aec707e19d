"""Pick up a cube and bring it to a target, in the interface of a Brax environment.

Seven joint speeds and a suction cup. The cup takes hold of a cube close to it while its action is
above 0, and lets go below -0.5. An episode ends when the held cube has stayed at the target for a
moment, or when it is out of reach; the time limit cuts it.
"""

import dataclasses
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.config import PickConfig
from jaxrl.envs.tasks.pick_place import reward
from jaxrl.envs.tasks.pick_place.arm import HOME, JOINTS, Arm, Pose
from jaxrl.envs.tasks.pick_place.reward import Moment, Task, Terms
from jaxrl.types import Array, Key

FPS = 25.0  # actions per second
LET_GO = -0.5  # suction below this
OUT_OF_REACH = 1.0  # metres from the arm's foot
SLACK = 0.03  # radians around home in which every joint starts
FIRST_LEVEL = 0.1  # of a curriculum: spread from the first moment on, for the normaliser's sake


class _Area(NamedTuple):
    """Where something may be: at `usual`, or anywhere between `low` and `high`."""

    usual: tuple[float, float, float]
    low: tuple[float, float, float]
    high: tuple[float, float, float]

    def draw(self, key: Key, level: Array | float) -> Array:
        """Draw a place from the area, drawn together around the usual place by the level."""
        usual, low, high = (jnp.asarray(corner) for corner in self)
        anywhere = low + (high - low) * jax.random.uniform(key, (3,), jnp.float32)
        return usual + level * (anywhere - usual)


CUBE = _Area((0.5, -0.15, 0.025), (0.35, -0.3, 0.025), (0.65, 0.3, 0.025))
TARGET = _Area((0.5, 0.15, 0.15), (0.35, -0.3, 0.05), (0.65, 0.3, 0.3))


class PickPlace(base.Env):
    """An arm, a cube and a target, which lie as `config.difficulty` says."""

    backend: str = "mjx"
    episode_length = 150
    action_size: int = JOINTS + 1
    observation_size: int = 2 * JOINTS + 17

    def __init__(self, config: PickConfig):
        self.config, self.arm = config, Arm(FPS, config.substeps)

    @property
    def mj_model(self) -> Any:
        """The model it is drawn by."""
        return self.arm.model

    @property
    def dt(self) -> float:
        """Seconds per action."""
        return 1.0 / FPS

    def render_state(self, state: base.State) -> dict[str, Array]:
        """Return what a picture of a state shows."""
        pose = cast(Pose, state.pipeline_state)
        quat = jnp.asarray([[1.0, 0.0, 0.0, 0.0]])
        return {"qpos": pose.qpos, "mocap_pos": state.info["target"][None], "mocap_quat": quat}

    def start_position(self, state: base.State) -> Array:
        """Return where the cube lies, [2]."""
        return state.info["start"][:2]

    def first_curriculum(self) -> Any:
        """Return how widely starts are spread at first; () where that never changes."""
        if self.config.difficulty != "curriculum":
            return ()
        return {"level": np.float32(FIRST_LEVEL)}

    def last_curriculum(self) -> Any:
        """Return the whole spread, by which policies are judged."""
        return jax.tree.map(np.ones_like, self.first_curriculum())

    def curriculum_after(self, curriculum: Any, metrics: dict[str, float]) -> tuple[Any, dict]:
        """Widen the spread after a cycle with enough success; what was reached is kept."""
        level = float(curriculum["level"])
        if metrics.get("rollout/success_rate", 0.0) > self.config.raise_at:
            level = min(1.0, level + self.config.raise_by)
        return {"level": np.float32(level)}, {"level": level}

    def reset(self, rng: Key, curriculum: Any = None) -> base.State:
        """Start near home, with cube and target drawn by the difficulty."""
        key_cube, key_target, key_joints = jax.random.split(rng, 3)
        spread = curriculum["level"] if curriculum else 1.0
        difficulty = self.config.difficulty
        cube = CUBE.draw(key_cube, 0.0 if difficulty == "easy" else spread)
        target = TARGET.draw(key_target, 0.0 if difficulty in ("easy", "medium") else spread)
        near_home = jax.random.uniform(key_joints, (JOINTS,), jnp.float32, -SLACK, SLACK)
        return self.begin(HOME + near_home, cube, target)

    def begin(self, joints: Array, cube: Array, target: Array) -> base.State:
        """Start in a given pose, with the cube and the target at given places."""
        pose = self.arm.start(joints, cube)
        held = jnp.zeros((), bool)
        now = Moment(self.arm.tip(pose), cube, held)
        metrics = {f"reward_{name}": jnp.zeros(()) for name in Terms._fields}
        metrics |= {name: jnp.zeros(()) for name in ("success", "held", "drops")}
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(pose, now, Task(target, cube), jnp.zeros(())),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics=metrics,
            info={"target": target, "start": cube, "tip": now.tip, "held": held}
            | {"stayed": jnp.zeros(()), "grip": self.arm.grip(pose)},
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Move for one control step, and see what came of it."""
        info, pose = state.info, cast(Pose, state.pipeline_state)
        task = Task(info["target"], info["start"])
        before = Moment(info["tip"], self.arm.cube(pose), info["held"])
        action = jnp.clip(action, -1.0, 1.0)
        held = self._holds(before, action[JOINTS])
        grip = jnp.where(before.held, info["grip"], self.arm.grip(pose))
        pose = self.arm.move(pose, action[:JOINTS] * self.arm.max_speed, held, grip)
        now = Moment(self.arm.tip(pose), self.arm.cube(pose), held)
        stayed = jnp.where(reward.there(self.config, now, task), info["stayed"] + 1.0, 0.0)
        success = stayed >= self.config.hold
        lost = jnp.sum(jnp.square(now.cube)) > OUT_OF_REACH**2
        paid = reward.terms(self.config, before, now, task, success, lost)
        metrics = {f"reward_{name}": value for name, value in paid._asdict().items()}
        metrics |= {"success": success, "held": held, "drops": before.held & ~held}
        return dataclasses.replace(
            state,
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(pose, now, task, stayed),
            reward=sum(paid),
            done=(success | lost).astype(jnp.float32),
            metrics={k: jnp.asarray(v, jnp.float32) for k, v in metrics.items()},
            info=info | {"tip": now.tip, "held": held & ~success, "stayed": stayed, "grip": grip},
        )

    def _holds(self, before: Moment, suction: Array) -> Array:
        """Tell whether the cup holds the cube in this step."""
        near = reward.distance(before.tip, before.cube) < self.config.attach_distance
        return jnp.where(before.held, suction >= LET_GO, near & (suction > 0.0))

    def _observe(self, pose: Pose, now: Moment, task: Task, stayed: Array) -> Array:
        """Return joints and speeds, places, ways to go, whether and how long all is well."""
        return jnp.concatenate(
            [
                pose.qpos[:JOINTS],
                pose.qvel[:JOINTS],
                now.tip,
                now.cube,
                task.target,
                now.cube - now.tip,
                task.target - now.cube,
                jnp.stack([now.held.astype(jnp.float32), stayed / self.config.hold]),
            ]
        )
