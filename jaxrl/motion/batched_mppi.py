"""The search of `motion.mppi` on JAX's device: many clips at once, in the physics of training.

Every frame is one program: all samples of all clips are simulated by MJX side by side. Clips are
padded to the longest one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config.mppi import MPPIConfig
from jaxrl.motion import mppi
from jaxrl.motion.clip import Plan
from jaxrl.motion.humanoid import Humanoid, Pose
from jaxrl.motion.library import Reference
from jaxrl.physics import mjx_patches
from jaxrl.physics.precision import physics
from jaxrl.types import Array, Key


class _Clips(NamedTuple):
    """Clips to follow, padded to the longest one."""

    reference: Reference  # [clips, frames, ...]
    servo_target: Array  # [clips, frames, nu], without feedforward
    last: Array  # int32 [clips], the number of the last frame


class _Search(NamedTuple):
    """Where the search is, for every clip."""

    pose: Pose  # reached
    best: Array  # [clips, frames ahead, nu], the best target offsets known


class _Frame(NamedTuple):
    """What was reached, and by which servo target, [clips, ...]."""

    qpos: Array
    qvel: Array
    target: Array


class BatchedPlanner:
    """Plans clips of one humanoid together."""

    def __init__(self, humanoid: Humanoid, config: MPPIConfig):
        mjx_patches.install()
        self.humanoid, self.config, self.model = humanoid, config, humanoid.model
        self._step = jax.jit(partial(_step, humanoid, config), donate_argnums=0)

    def plan(
        self, clips: Sequence[Reference], tick: Callable[[], None] = lambda: None
    ) -> list[Plan | None]:
        """Return a plan of each clip [F, ...], or None where the simulation diverged.

        `tick` is called after every frame of the longest clip.
        """
        padded, number = self._padded(clips), self.config.frames
        start = jax.tree.map(lambda x: x[:, 0], padded.reference)
        pose = jax.vmap(self.humanoid.start)(start.qpos, start.qvel)
        search = _Search(pose, jnp.zeros((len(clips), number, self.humanoid.num_actuators)))
        key, frames = jax.random.key(self.config.seed), []
        for frame in range(1, padded.reference.qpos.shape[1]):
            search, reached = self._step(search, padded, np.int32(frame), key)
            frames.append(jax.device_get(reached))
            tick()
        reached = jax.tree.map(lambda *x: np.stack(x, axis=1, dtype=np.float64), *frames)
        of_clips = zip(clips, *reached, strict=True)
        return [self._plan(clip, _Frame(*of_clip)) for clip, *of_clip in of_clips]

    def _padded(self, clips: Sequence[Reference]) -> _Clips:
        lengths = [len(clip.qpos) for clip in clips]

        def pad(*parts: np.ndarray) -> Array:
            longest = [np.minimum(np.arange(max(lengths)), n - 1) for n in lengths]
            rows = [np.asarray(x)[index] for x, index in zip(parts, longest, strict=True)]
            return jnp.asarray(np.stack(rows), jnp.float32)

        targets = [mppi.servo_targets(self.humanoid, clip.qpos, clip.qvel) for clip in clips]
        last = jnp.asarray(lengths, jnp.int32) - 1
        return _Clips(jax.tree.map(pad, *clips), pad(*targets), last)

    def _plan(self, clip: Reference, reached: _Frame) -> Plan | None:
        qpos, qvel, target = (x[: len(clip.qpos) - 1] for x in reached)
        if not (np.isfinite(qpos).all() and np.isfinite(qvel).all()):
            return None
        start = (np.asarray(x, np.float64)[:1] for x in (clip.qpos, clip.qvel))
        qpos, qvel = (np.concatenate(x) for x in zip(start, (qpos, qvel), strict=True))
        return mppi.feasible(self.humanoid, qpos, qvel, np.concatenate([target[:1], target]))


def _step(
    humanoid: Humanoid, config: MPPIConfig, search: _Search, clips: _Clips, frame: Array, key: Key
) -> tuple[_Search, _Frame]:
    """Improve the sequences of all clips, then apply their first target."""
    with physics():
        keys = jax.random.split(jax.random.fold_in(key, frame), len(clips.last))
        goals = jax.vmap(partial(_goal, frame=frame, number=config.frames))(clips)
        best = jax.vmap(partial(_update, humanoid, config))(search.best, search.pose, goals, keys)
        target = _targets(humanoid, config, goals.servo_target[:, 0], best[:, 0])
        pose, _ = jax.vmap(humanoid.move)(search.pose, target)
    best = jnp.concatenate([best[:, 1:], best[:, -1:]], axis=1)
    return _Search(pose, best), _Frame(pose.qpos, pose.qvel, target)


def _goal(clip: _Clips, frame: Array, number: int) -> mppi.Goal:
    """Return `number` frames of one clip from `frame` on; past the end the last one is repeated."""
    frames = frame + jnp.arange(number)
    index = jnp.minimum(frames, clip.last)
    reference = jax.tree.map(lambda x: x[index], clip.reference)
    return mppi.Goal(reference, clip.servo_target[index], frames <= clip.last)


def _update(
    humanoid: Humanoid, config: MPPIConfig, best: Array, pose: Pose, goal: mppi.Goal, key: Key
) -> Array:
    """Return a better sequence of target offsets [frames, nu] for one clip."""
    mixing = jnp.asarray(correlation_matrix(config.frames), jnp.float32)

    def advance(pose: Pose, target: Array) -> tuple[Pose, Array]:
        pose, _ = humanoid.move(pose, target)
        return pose, jnp.concatenate([pose.qpos, pose.qvel])

    def cost(sample: Array) -> Array:
        targets = _targets(humanoid, config, goal.servo_target, sample)
        _, states = jax.lax.scan(advance, pose, targets)
        effort = 0.01 * jnp.sum(jnp.mean(jnp.square(sample), axis=-1))
        return mppi.cost(humanoid, states, goal) + effort

    def round_(best: Array, given: tuple[Key, Array]) -> tuple[Array, None]:
        key, spread = given
        noise = jax.random.normal(key, (config.samples, *best.shape))
        noise = jnp.einsum("fg,sgu->sfu", mixing, noise)
        samples = jnp.clip(best + spread * noise, -1.0, 1.0).at[0].set(best)
        return _average(samples, jax.vmap(cost)(samples)), None

    spreads = config.spread * 0.6 ** jnp.arange(config.rounds)
    return jax.lax.scan(round_, best, (jax.random.split(key, config.rounds), spreads))[0]


def _targets(humanoid: Humanoid, config: MPPIConfig, servo_target: Array, offset: Array) -> Array:
    targets = servo_target + config.action_range * offset
    return jnp.clip(targets, humanoid.low, humanoid.high)


def correlation_matrix(frames: int) -> np.ndarray:
    """Return the matrix that correlates independent noise of `frames` as `mppi.correlate` does."""
    return mppi.correlate(np.eye(frames)[None])[0]


def _average(samples: Array, cost: Array) -> Array:
    """Return the weighted mean of sequences [N, ...], as `mppi.average` does."""
    cost = jnp.where(jnp.isfinite(cost), cost, jnp.finfo(jnp.float32).max)
    least, tenth = jnp.quantile(cost, jnp.array([0.0, 0.1]), method="lower")
    weights = jnp.exp(-2.0 * (cost - least) / jnp.maximum(tenth - least, 1e-9))
    return jnp.tensordot(weights / jnp.sum(weights), samples, axes=1)
