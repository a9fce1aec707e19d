"""Plan physically feasible versions of captured clips by MPPI.

Captured motion violates physics, most of all in flight: nobody can turn over faster halfway through
a jump. To follow such a clip one must leave the ground faster than it does and deviate from it
meanwhile, which is hard to learn by exploration, but easy to find by planning. At every frame many
sequences of servo targets for the next frames are sampled around the current one, simulated, and
averaged by how well they track (model predictive path integral control, Williams et al., 2017). The
first target is then applied.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# MuJoCo is compiled and has no type stubs.

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.typing import ArrayLike
from mujoco import rollout

from jaxrl.config.mppi import MPPIConfig
from jaxrl.motion.clip import Plan
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.library import Reference
from jaxrl.types import Array

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, positions, velocities


class Goal(NamedTuple):
    """What to track in the next frames."""

    reference: Reference  # [frames, ...]
    servo_target: Any  # [frames, nu], without feedforward; of numpy, or of JAX if traced
    valid: Any  # bool [frames]: false past the clip's end


def goal_of(clip: Reference, servo_target: np.ndarray, frame: int, number: int) -> Goal:
    """Return `number` frames of a clip from `frame` on; past the end the last one is repeated."""
    frames = frame + np.arange(number)
    last = len(clip.qpos) - 1
    index = np.minimum(frames, last)
    return Goal(jax.tree.map(lambda x: x[index], clip), servo_target[index], frames <= last)


class Planner:
    """Plans clips of one humanoid, with a simulation on every core."""

    def __init__(self, humanoid: Humanoid, config: MPPIConfig):
        self.humanoid, self.config, self.model = humanoid, config, humanoid.model
        cores = os.cpu_count() or 1
        self._rollout = rollout.Rollout(nthread=cores)
        self._simulations = [mujoco.MjData(self.model) for _ in range(cores)]
        self._costs = jax.jit(jax.vmap(partial(cost, humanoid), (0, None)))

    def plan(self, clip: Reference, tick: Callable[[], None] = lambda: None) -> Plan | None:
        """Return a plan of a clip [F, ...], or None if the simulation diverged.

        `tick` is called after every frame.
        """
        with _no_warnings():
            return self._search(clip, tick)

    def _search(self, clip: Reference, tick: Callable[[], None]) -> Plan | None:
        clip = jax.tree.map(lambda x: np.asarray(x, np.float64), clip)
        servo_target = servo_targets(self.humanoid, clip.qpos, clip.qvel)
        rng = np.random.default_rng(self.config.seed)
        body = mujoco.MjData(self.model)
        body.qpos[:], body.qvel[:] = clip.qpos[0], clip.qvel[0]
        body.time = 1.0  # MuJoCo resets a simulation that diverges to time 0
        best = np.zeros((self.config.frames, self.model.nu))
        poses, speeds, targets = [body.qpos.copy()], [body.qvel.copy()], []
        for frame in range(1, len(clip.qpos)):
            goal = goal_of(clip, servo_target, frame, self.config.frames)
            best = self._update(best, body, goal, rng)
            body.ctrl[:] = self._targets(goal.servo_target[0], best[0])
            before = body.time
            mujoco.mj_step(self.model, body, self.humanoid.substeps)
            if body.time <= before:  # it diverged, and was reset
                return None
            poses.append(body.qpos.copy())
            speeds.append(body.qvel.copy())
            targets.append(body.ctrl.copy())
            best = np.concatenate([best[1:], best[-1:]])
            tick()
        return feasible(
            self.humanoid, np.array(poses), np.array(speeds), np.array([targets[0], *targets])
        )

    def _update(
        self, best: np.ndarray, body: mujoco.MjData, goal: Goal, rng: np.random.Generator
    ) -> np.ndarray:
        """Return a better sequence of target offsets [frames, nu] from the current state."""
        config = self.config
        start = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, body, start, _STATE)
        starts = np.tile(start, (config.samples, 1))
        solver = np.tile(body.qacc_warmstart, (config.samples, 1))
        for round_ in range(config.rounds):
            samples = correlate(rng.normal(size=(config.samples, *best.shape)))
            samples = np.clip(best + config.spread * 0.6**round_ * samples, -1.0, 1.0)
            samples[0] = best
            targets = self._targets(goal.servo_target, samples)
            control = np.repeat(targets, self.humanoid.substeps, axis=1)
            states, _ = self._rollout.rollout(
                self.model, self._simulations, starts, control, initial_warmstart=solver
            )
            reached = np.asarray(states)[:, self.humanoid.substeps - 1 :: self.humanoid.substeps]
            effort = 0.01 * np.mean(np.square(samples), axis=-1).sum(-1)
            costs = np.asarray(self._costs(reached[..., 1:], goal)) + effort
            times = np.concatenate([starts[:, :1], reached[..., 0]], axis=1)
            diverged = np.any(np.diff(times, axis=1) <= 0, axis=1)  # MuJoCo reset their time
            best = average(samples, np.where(diverged, np.inf, costs))
        return best

    def _targets(self, servo_target: np.ndarray, offset: np.ndarray) -> np.ndarray:
        targets = servo_target + self.config.action_range * offset
        return np.clip(targets, self.humanoid.low, self.humanoid.high)


def feasible(humanoid: Humanoid, qpos: np.ndarray, qvel: np.ndarray, targets: np.ndarray) -> Plan:
    """Return a plan whose feedforward is relative to the poses that were reached."""
    feedforward = targets - servo_targets(humanoid, qpos, qvel)
    return Plan(qpos, qvel, feedforward, humanoid.substeps)


def servo_targets(humanoid: Humanoid, qpos: ArrayLike, qvel: ArrayLike) -> np.ndarray:
    """Return servo targets of poses [F, ...] without feedforward, [F, nu]."""
    targets = jax.vmap(humanoid.servo_target)(jnp.asarray(qpos), jnp.asarray(qvel))
    return np.asarray(targets, np.float64)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Silence MuJoCo's warnings (and its log file) about samples that diverge."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def correlate(noise: np.ndarray, correlation: float = 0.6) -> np.ndarray:
    """Correlate the frames of noise [N, frames, nu] in time: bodies are slow."""
    for frame in range(1, noise.shape[1]):
        noise[:, frame] = (
            correlation * noise[:, frame - 1] + np.sqrt(1 - correlation**2) * noise[:, frame]
        )
    return noise


def average(samples: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return the weighted mean of sequences [N, ...]; hardly any but the best tenth counts."""
    cost = np.where(np.isfinite(cost), cost, np.finfo(np.float32).max)
    least, tenth = np.quantile(cost, [0.0, 0.1], method="lower")
    weights = np.exp(-2.0 * (cost - least) / max(tenth - least, 1e-9))
    return np.tensordot(weights / weights.sum(), samples, axes=1)


def cost(humanoid: Humanoid, states: Array, goal: Goal) -> Array:
    """Return the tracking error of simulated states [frames, nq + nv]."""
    reference = goal.reference
    qpos, qvel = jnp.split(states.astype(jnp.float32), [humanoid.model.nq], axis=-1)
    offset = jax.vmap(humanoid.body_positions)(qpos) - reference.position
    aligned = jnp.sum(qpos[..., 3:7] * reference.qpos[..., 3:7], axis=-1)
    angles = humanoid.angles(qpos) - humanoid.angles(reference.qpos)
    costs = (
        10.0 * jnp.mean(jnp.sum(jnp.square(offset), axis=-1), axis=-1)
        + 2.0 * (1.0 - jnp.square(aligned))
        + 0.5 * jnp.mean(jnp.square(angles), axis=-1)
        + 0.002 * jnp.mean(jnp.square(qvel - reference.qvel), axis=-1)
    )
    return jnp.sum(jnp.where(goal.valid, costs, 0.0))
