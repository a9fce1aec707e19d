"""Track motion capture with a simulated humanoid: a Brax environment.

An episode tracks one clip from some time on. At every control step the humanoid observes itself and
the clip's next frames, and is rewarded for matching the clip. The episode terminates when a body is
too far off, and is truncated at the clip's end. If the clip has a plan, the plan is what is
observed and must not be left; the reward still compares with the captured clip.
"""

import dataclasses
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.envs.hooks import TrialEpisodes, TrialReport
from jaxrl.envs.tasks import tracking
from jaxrl.envs.tasks.motion_env import MotionEnv, Place
from jaxrl.motion import clip_sampling, observations
from jaxrl.motion.clip import FPS
from jaxrl.motion.clip_sampling import Resampling
from jaxrl.motion.humanoid import Pose
from jaxrl.motion.library import Reference
from jaxrl.motion.tracking_metrics import success_bodies, within_training_limit
from jaxrl.types import Array, Key, PyTree

_TERMS = tuple(f"reward_{name}" for name in (*observations.RewardTerms._fields, "power"))


class Imitation(MotionEnv):
    """Track the clips of a library."""

    @property
    def episode_length(self) -> int:
        """More than the longest clip, played slowly: its end comes first."""
        return math.ceil(int(np.max(self.library.frames)) / (1.0 - self.config.speed)) + 2

    @property
    def num_trials(self) -> int:
        """An evaluation plays every clip once."""
        return self.num_clips

    @property
    def trial_names(self) -> tuple[str, ...]:
        """The names of the clips."""
        return self.library.names

    def first_curriculum(self) -> Resampling:
        """Return equal weights for all clips."""
        return jax.tree.map(np.asarray, clip_sampling.init(self.num_clips))

    def update_curriculum_from_trials(
        self, curriculum: Resampling, episodes: TrialEpisodes
    ) -> tuple[Resampling, dict[str, float]]:
        """Sample clips that failed their trials more often.

        A trial failed where training would have terminated the episode.
        """
        failed = self.failed_trials(episodes)
        floor, decay = self.config.resample_floor, self.config.resample_decay
        after = clip_sampling.update(curriculum, jnp.asarray(failed), floor=floor, decay=decay)
        return after, {"max_weight": np.max(after.weights), "failed_clips": np.sum(failed)}

    def failed_trials(self, episodes: TrialEpisodes) -> np.ndarray:
        """Return which trials would have been terminated in training."""
        trace, frames = episodes.trace, jnp.asarray(episodes.lengths, jnp.int32)
        position, reference = (
            jnp.swapaxes(jnp.asarray(trace[name]), 0, 1) for name in ("position", "reference")
        )
        limit = self.config.distance
        return np.asarray(~within_training_limit(position, reference, frames, limit=limit))

    def trial_report(self, episodes: TrialEpisodes) -> TrialReport:
        """Return tracking errors and successes of all clips."""
        return tracking.report(episodes, self.library)

    def trial_success(self, episodes: TrialEpisodes) -> np.ndarray:
        """Return which of some clips were tracked to their end."""
        return tracking.evaluate(episodes.trace, episodes.lengths).success

    def trial_poses(self, episodes: TrialEpisodes, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the poses of a trial and of its clip, [frames, nq] each."""
        count = int(episodes.lengths[number])
        qpos = np.asarray(episodes.trace["qpos"])[:count, number]
        # States are recorded after each step: the first one belongs to the clip's second frame.
        captured = np.asarray(self.library.captured_motion.qpos[self.library.rows(number)])
        return qpos, captured[1 : count + 1]

    def reset(self, rng: Key, curriculum: Resampling | None = None) -> base.State:
        """Start at a random time of a random clip, with a random yaw."""
        return self._start(self.sample_start(rng, curriculum.weights if curriculum else None))

    def trial(self, clip: Array) -> base.State:
        """Start at the beginning of a clip; only the clip's end ends the episode."""
        return self._start(self.start_of(clip), is_trial=True)

    def record(self, state: base.State) -> dict[str, Array]:
        """Return the positions of all bodies, simulated, captured, and to be tracked."""
        info, pose = state.info, cast(Pose, state.pipeline_state)
        return {
            "position": self.humanoid.body_motion(pose).position,
            "captured": self._captured(info).position,
            "reference": self.reference(info).position,
            "success_bodies": jnp.asarray(success_bodies(self.humanoid.skeleton.bodies)),
        }

    def render_state(self, state: base.State) -> dict[str, Array]:
        """Return the humanoid's pose, and as a ghost the clip's."""
        pose = cast(Pose, state.pipeline_state)
        return {"qpos": pose.qpos, "ghost": self._captured(state.info).qpos}

    def _start(self, place: Place, is_trial: bool = False) -> base.State:
        start = self.reference(place)
        pose = self.humanoid.start(start.qpos, start.qvel)
        info = place | {"truncation": jnp.zeros(())}
        info["is_trial"] = jnp.asarray(is_trial, jnp.float32)
        info |= self.amp_history(place)
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(self.humanoid.body_motion(pose), info),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics={name: jnp.zeros(()) for name in (*_TERMS, "distance")},
            info=info,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Set servo targets, simulate up to the next frame, and compare."""
        info = dict(state.info)
        info["time"] = next_frame(info["time"])
        reference = self.reference(info)
        pose: Any = state.pipeline_state
        target = self._target(reference, self.feedforward(info), action)
        pose, power = self.humanoid.move(pose, target)
        now = self.humanoid.body_motion(pose)
        info |= self.next_amp_history(info, now)
        terms = observations.reward_terms(now, self._captured(info), self.config.scales)
        rewards = [w * term for w, term in zip(self.config.weights, terms, strict=True)]
        cost = -self.config.power_coef * power
        distances = observations.body_distances(now, reference)
        too_far = jnp.max(distances) > self.config.distance
        at_end = info["time"] >= self.duration(info) - 0.5 / FPS
        too_far = too_far & (info["is_trial"] == 0)
        info["truncation"] = (at_end & ~too_far).astype(jnp.float32)
        return dataclasses.replace(
            state,
            pipeline_state=pose,
            obs=self._observe(now, info),
            reward=sum(rewards) + cost,
            done=(at_end | too_far).astype(jnp.float32),
            metrics=dict(zip(_TERMS, [*rewards, cost], strict=True))
            | {"distance": jnp.mean(distances)},
            info=info,
        )

    def _captured(self, info: dict[str, Array]) -> Reference:
        return self.reference(info, captured=True)

    def _target(self, reference: Reference, feedforward: Array, action: Array) -> Array:
        """Return servo targets: around the clip's next pose, or around the rest pose."""
        if self.config.residual:
            target = self.humanoid.servo_target(reference.qpos, reference.qvel) + feedforward
            return target + self.config.action_scale * jnp.clip(action, -1.0, 1.0)
        return self.absolute_target(action)

    def _observe(self, now: Reference, info: dict[str, Array]) -> PyTree:
        parts = [observations.proprioception(now)]
        for ahead in self.config.future:
            target = self.reference(info, ahead / FPS)
            parts.append(observations.goal_obs(now, target))
        return self.with_amp(jnp.concatenate(parts), info)


def next_frame(time: Array) -> Array:
    """Return the time of a clip's next frame; sums of 1/30 s would drift in long clips."""
    return (jnp.round(time * FPS) + 1.0) / FPS
