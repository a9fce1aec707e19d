"""Follow motion capture with a physical humanoid, in the interface of a Brax environment.

An episode shows one clip from some moment on. Every control step the humanoid sees itself and the
clip's next frames, and is paid for being where the clip is. It ends when a body strays too far, and
is cut (not ended: the future still has value) where the clip is over. Where a way through the clip
was planned, that is what is seen and not to be strayed from; what is paid for stays the clip.
"""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.envs.tasks.motion_env import MotionEnv
from jaxrl.motion import clip_sampling, observations
from jaxrl.motion import library as libraries
from jaxrl.motion.clip import FPS
from jaxrl.motion.clip_sampling import Resampling
from jaxrl.motion.humanoid import Pose
from jaxrl.motion.library import Reference
from jaxrl.motion.tracking_metrics import judged_bodies, within_training_limit
from jaxrl.types import Array, Key, PyTree


class Imitation(MotionEnv):
    """Track the clips of a library."""

    @property
    def episode_length(self) -> int:
        """More than the longest clip: its end comes first."""
        return int(np.max(self.library.frames)) + 2

    @property
    def num_trials(self) -> int:
        """An evaluation plays every clip once."""
        return self.num_clips

    def first_curriculum(self) -> Resampling:
        """Return how likely each clip is drawn, to begin with."""
        return jax.tree.map(np.asarray, clip_sampling.init(self.num_clips))

    def next_curriculum(
        self, curriculum: Resampling, episodes: Any
    ) -> tuple[Resampling, dict[str, float]]:
        """Let clips that failed their trials come up more often; say what to log.

        A trial failed where training would have ended the episode.
        """
        trace, frames = episodes.trace, jnp.asarray(episodes.lengths, jnp.int32)
        names = ("played", "followed")
        played, followed = (jnp.swapaxes(jnp.asarray(trace[name]), 0, 1) for name in names)
        limit = self.config.distance
        failed = np.asarray(~within_training_limit(played, followed, frames, limit=limit))
        floor, decay = self.config.resample_floor, self.config.resample_decay
        after = clip_sampling.update(curriculum, jnp.asarray(failed), floor=floor, decay=decay)
        return after, {"max_weight": np.max(after.weights), "failed_clips": np.sum(failed)}

    def reset(self, rng: Key, curriculum: Resampling | None = None) -> base.State:
        """Start in a moment of a clip, both drawn, turned any way."""
        return self._begin(*self.moment(rng, curriculum.weights if curriculum else None))

    def trial(self, clip: Array) -> base.State:
        """Start at the beginning of a clip, as it was captured; the end is the clip's alone."""
        return self._begin(clip, jnp.zeros(()), jnp.zeros(()), judged=True)

    def record(self, state: base.State) -> dict[str, Array]:
        """Return where all bodies are and were when captured: what tracking is judged by."""
        info, pose = state.info, cast(Pose, state.pipeline_state)
        return {
            "played": self.figure.body_motion(pose).position,
            "meant": self._captured(info).position,
            "followed": self.reference(info["clip"], info["time"], info["turn"]).position,
            "counts": jnp.asarray(judged_bodies(self.figure.skeleton.bodies)),
        }

    def render_state(self, state: base.State) -> dict[str, Array]:
        """Return the humanoid's pose, and as a ghost the clip's."""
        pose = cast(Pose, state.pipeline_state)
        return {"qpos": pose.qpos, "ghost": self._captured(state.info).qpos}

    def _begin(self, clip: Array, time: Array, turn: Array, judged: bool = False) -> base.State:
        shown = self.reference(clip, time, turn)
        pose = self.figure.start(shown.qpos, shown.qvel)
        info = {"clip": clip, "time": time, "turn": turn, "truncation": jnp.zeros(())}
        info["judged"] = jnp.asarray(judged, jnp.float32)
        info |= self.amp_before(clip, time)
        names = (*observations.Terms._fields, "power")
        metrics = {f"reward_{name}": jnp.zeros(()) for name in names}
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(self.figure.body_motion(pose), info),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics=metrics | {"distance": jnp.zeros(())},
            info=info,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Aim the servos, wait for the next frame, and compare."""
        info = dict(state.info)
        info["time"] = next_frame(info["time"])
        meant = self.reference(info["clip"], info["time"], info["turn"])
        pose: Any = state.pipeline_state
        push = libraries.push(self.library, info["clip"], info["time"])
        pose, power = self.figure.move(pose, self._target(meant, push, action))
        now = self.figure.body_motion(pose)
        info |= self.amp_after(info, now)
        terms = observations.terms(now, self._captured(info), self.config.scales)
        earned = [w * term for w, term in zip(self.config.weights, terms, strict=True)]
        cost = -self.config.power_coef * power
        apart = observations.distances(now, meant)
        lost = jnp.max(apart) > self.config.distance
        over = info["time"] >= libraries.length(self.library, info["clip"]) - 0.5 / FPS
        lost = lost & (info["judged"] == 0)
        info["truncation"] = (over & ~lost).astype(jnp.float32)
        names = [f"reward_{name}" for name in (*observations.Terms._fields, "power")]
        done = (over | lost).astype(jnp.float32)
        return dataclasses.replace(
            state,
            pipeline_state=pose,
            obs=self._observe(now, info),
            reward=sum(earned) + cost,
            done=done,
            metrics=dict(zip(names, [*earned, cost], strict=True)) | {"distance": jnp.mean(apart)},
            info=info,
        )

    def _captured(self, info: dict[str, Array]) -> Reference:
        return self.reference(info["clip"], info["time"], info["turn"], captured=True)

    def _target(self, meant: Reference, push: Array, action: Array) -> Array:
        """Return what the servos aim at: around the clip's next pose, or around the rest pose."""
        if self.config.residual:
            aim = self.figure.aim(meant.qpos, meant.qvel) + push
            return aim + self.config.action_scale * jnp.clip(action, -1.0, 1.0)
        return self.absolute_target(action)

    def _observe(self, now: Reference, info: dict[str, Array]) -> PyTree:
        parts = [observations.own(now)]
        for ahead in self.config.future:
            time = info["time"] + ahead / FPS
            parts.append(observations.goal(now, self.reference(info["clip"], time, info["turn"])))
        return self.seen(jnp.concatenate(parts), info)


def next_frame(time: Array) -> Array:
    """Return the time of a clip's next frame; sums of thirtieths would drift in long clips."""
    return (jnp.round(time * FPS) + 1.0) / FPS
