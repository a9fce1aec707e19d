"""A way through a captured clip that obeys physics: drawn at random, kept where it follows best.

Captured motion breaks laws of physics, most of all in flight: nobody can turn over faster halfway
through a jump. To follow such a clip one must leave the ground faster than it does and stray from
it meanwhile, which is hard to learn by trying, but easy to find by looking ahead. At every frame
many sequences of servo targets for the next frames are drawn around the best known one, simulated,
and averaged by how well they follow (model predictive path integral control, Williams et al.,
2017). The first target is then taken for good.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# MuJoCo is compiled and says nothing of its types.

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout

from jaxrl.motion.clip import Plan
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.library import Reference
from jaxrl.types import Array

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, positions, speeds


@dataclass(frozen=True)
class Search:
    """How a way is looked for."""

    samples: int = 300
    """Sequences drawn in every round."""
    frames: int = 20
    """How far ahead they go."""
    rounds: int = 3
    """Rounds for each frame, each drawn more narrowly than the one before."""
    reach: float = 0.5
    """How far beyond the clip's pose servos may aim, in radians."""
    spread: float = 0.4
    """Of the first round's draws, as a part of the reach."""
    seed: int = 0
    """Of the draws."""


class _Goal(NamedTuple):
    """What to follow in the next frames."""

    meant: Reference  # [frames, ...]
    aim: np.ndarray  # [frames, nu], of servos that know no better
    counts: np.ndarray  # bool [frames]: false past the end, where anything will do


def _goal(clip: Reference, aim: np.ndarray, frame: int, number: int) -> _Goal:
    """Return what to follow in so many frames from one on; past the end the last one stays."""
    frames = frame + np.arange(number)
    last = len(clip.qpos) - 1
    at = np.minimum(frames, last)
    return _Goal(jax.tree.map(lambda x: x[at], clip), aim[at], frames <= last)


class Planner:
    """Plans ways through clips of one humanoid; a simulation for every core."""

    def __init__(self, figure: Humanoid, search: Search):
        self.figure, self.search, self.model = figure, search, figure.model
        cores = os.cpu_count() or 1
        self._rollout = rollout.Rollout(nthread=cores)
        self._simulations = [mujoco.MjData(self.model) for _ in range(cores)]
        self._costs = jax.jit(jax.vmap(partial(_cost, figure), (0, None)))

    def plan(self, clip: Reference, tick: Callable[[], None] = lambda: None) -> Plan | None:
        """Return a way through a clip [F, ...], or None where physics gives up on it.

        `tick` is called after every frame.
        """
        with _no_warnings():
            return self._found(clip, tick)

    def _found(self, clip: Reference, tick: Callable[[], None]) -> Plan | None:
        clip = jax.tree.map(lambda x: np.asarray(x, np.float64), clip)
        aim = self._aim(clip.qpos, clip.qvel)
        rng = np.random.default_rng(self.search.seed)
        body = mujoco.MjData(self.model)
        body.qpos[:], body.qvel[:] = clip.qpos[0], clip.qvel[0]
        body.time = 1.0  # who explodes is put back on their feet by MuJoCo, at time 0
        best = np.zeros((self.search.frames, self.model.nu))
        poses, speeds, targets = [body.qpos.copy()], [body.qvel.copy()], []
        for frame in range(1, len(clip.qpos)):
            goal = _goal(clip, aim, frame, self.search.frames)
            best = self._improved(best, body, goal, rng)
            body.ctrl[:] = self._targets(goal.aim[0], best[0])
            before = body.time
            mujoco.mj_step(self.model, body, self.figure.substeps)
            if body.time <= before:  # it exploded, and was put back
                return None
            poses.append(body.qpos.copy())
            speeds.append(body.qvel.copy())
            targets.append(body.ctrl.copy())
            best = np.concatenate([best[1:], best[-1:]])
            tick()
        return self._made(np.array(poses), np.array(speeds), np.array([targets[0], *targets]))

    def _improved(
        self, best: np.ndarray, body: mujoco.MjData, goal: _Goal, rng: np.random.Generator
    ) -> np.ndarray:
        """Return a better sequence of pushes [frames, nu] from where the body is."""
        look = self.search
        start = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, body, start, _STATE)
        starts = np.tile(start, (look.samples, 1))
        solver = np.tile(body.qacc_warmstart, (look.samples, 1))
        for round_ in range(look.rounds):
            drawn = _correlated(rng.normal(size=(look.samples, *best.shape)))
            drawn = np.clip(best + look.spread * 0.6**round_ * drawn, -1.0, 1.0)
            drawn[0] = best
            control = np.repeat(self._targets(goal.aim, drawn), self.figure.substeps, axis=1)
            states, _ = self._rollout.rollout(
                self.model, self._simulations, starts, control, initial_warmstart=solver
            )
            reached = np.asarray(states)[:, self.figure.substeps - 1 :: self.figure.substeps]
            effort = 0.01 * np.mean(np.square(drawn), axis=-1).sum(-1)
            cost = np.asarray(self._costs(reached[..., 1:], goal)) + effort
            times = np.concatenate([starts[:, :1], reached[..., 0]], axis=1)
            put_back = np.any(np.diff(times, axis=1) <= 0, axis=1)  # those that exploded
            best = _averaged(drawn, np.where(put_back, np.inf, cost))
        return best

    def _targets(self, aim: np.ndarray, push: np.ndarray) -> np.ndarray:
        return np.clip(aim + self.search.reach * push, self.figure.low, self.figure.high)

    def _made(self, qpos: np.ndarray, qvel: np.ndarray, targets: np.ndarray) -> Plan:
        """Return a plan whose pushes are measured from the poses that were really reached."""
        return Plan(qpos, qvel, targets - self._aim(qpos, qvel), self.figure.substeps)

    def _aim(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Return what servos aim at in poses [F, ...] when they know no better, [F, nu]."""
        aims = jax.vmap(self.figure.aim)(jnp.asarray(qpos), jnp.asarray(qvel))
        return np.asarray(aims, np.float64)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Let MuJoCo be silent, and write no file, about draws that explode: they are left out."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _correlated(noise: np.ndarray, part: float = 0.6) -> np.ndarray:
    """Let every frame of [N, frames, nu] keep a part of the one before: bodies are slow."""
    for frame in range(1, noise.shape[1]):
        noise[:, frame] = part * noise[:, frame - 1] + np.sqrt(1 - part**2) * noise[:, frame]
    return noise


def _averaged(drawn: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return the mean of sequences [N, ...]; hardly any but the best tenth counts."""
    cost = np.where(np.isfinite(cost), cost, np.finfo(np.float32).max)
    least, tenth = np.quantile(cost, [0.0, 0.1], method="lower")
    weights = np.exp(-2.0 * (cost - least) / max(tenth - least, 1e-9))
    return np.tensordot(weights / weights.sum(), drawn, axes=1)


def _cost(figure: Humanoid, states: Array, goal: _Goal) -> Array:
    """Return how far simulated states [frames, nq + nv] are from what is meant."""
    meant = goal.meant
    qpos, qvel = jnp.split(states.astype(jnp.float32), [figure.model.nq], axis=-1)
    apart = jax.vmap(figure.places)(qpos) - meant.position
    along = jnp.sum(qpos[..., 3:7] * meant.qpos[..., 3:7], axis=-1)
    bent = figure.angles(qpos) - figure.angles(meant.qpos)
    cost = (
        10.0 * jnp.mean(jnp.sum(jnp.square(apart), axis=-1), axis=-1)
        + 2.0 * (1.0 - jnp.square(along))
        + 0.5 * jnp.mean(jnp.square(bent), axis=-1)
        + 0.002 * jnp.mean(jnp.square(qvel - meant.qvel), axis=-1)
    )
    return jnp.sum(jnp.where(goal.counts, cost, 0.0))
