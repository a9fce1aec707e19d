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

from jaxrl.config import MotionConfig, TrainConfig
from jaxrl.envs.hooks import TrialCondition, TrialEpisodes, TrialReport, TrialSchedule
from jaxrl.envs.tasks import disturbances, tracking
from jaxrl.envs.tasks.motion_env import MotionEnv, Place
from jaxrl.motion import clip_sampling, fallen, observations
from jaxrl.motion.clip import FPS
from jaxrl.motion.clip_sampling import Resampling
from jaxrl.motion.humanoid import Humanoid, Pose
from jaxrl.motion.library import Library, Reference
from jaxrl.motion.tracking_metrics import success_bodies, within_training_limit
from jaxrl.types import Array, Key, PyTree

_FALLS = 64  # fallen poses
_RECOVERY = ("reward_recovery", "recovering", "recovered")
_TERMS = tuple(f"reward_{name}" for name in (*observations.RewardTerms._fields, "power"))


class Imitation(MotionEnv):
    """Track the clips of a library."""

    trial_criteria = tracking.CRITERIA

    def __init__(
        self, config: MotionConfig, humanoid: Humanoid, library: Library, *, use_amp: bool = False
    ):
        super().__init__(config, humanoid, library, use_amp=use_amp)
        number = _FALLS if config.fallen_starts else 0
        self._fallen = jnp.asarray(fallen.poses(humanoid, number)) if number else None

    @property
    def episode_length(self) -> int:
        """More than the longest clip, played slowly: its end comes first."""
        return episode_length(int(np.max(self.library.frames)), self.config)

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

    def trial_schedule(self) -> TrialSchedule:
        """Return what --motion.resample-interval and --motion.resample-deterministic say."""
        return TrialSchedule(self.config.resample_interval, self.config.resample_deterministic)

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

    def trial_conditions(self, config: TrainConfig) -> list[TrialCondition]:
        """Return the conditions of `jaxrl.evaluate`: without plans and pushed, where it applies."""
        return tracking.conditions(config)

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
        place = self.sample_start(rng, curriculum.weights if curriculum else None)
        key_push, key_fall = jax.random.split(rng, 7)[5:]  # after those of the place
        state = self._start(place | self._disturbances(key_push))
        return state if self._fallen is None else self._some_fallen(state, key_fall)

    def trial(self, clip: Array) -> base.State:
        """Start at the beginning of a clip; only the clip's end ends the episode."""
        key = jnp.zeros(2, jnp.uint32)  # environments in evaluations get keys of their own
        return self._start(self.start_of(clip) | self._disturbances(key), is_trial=True)

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
            metrics={name: jnp.zeros(()) for name in self._metric_names},
            info=info,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Set servo targets, simulate up to the next frame, and compare."""
        info = dict(state.info)
        waits = info["recovery"] > 0.0 if "recovery" in info else None
        time = next_frame(info["time"])
        info["time"] = time if waits is None else jnp.where(waits, info["time"], time)
        reference = self.reference(info)
        pose: Any = state.pipeline_state
        if self.config.push:
            info["rng"], key = jax.random.split(info["rng"])
            pose = pose.replace(qvel=self._pushed(key, pose.qvel, info["is_trial"]))
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
        reward, metrics = sum(rewards) + cost, dict(zip(_TERMS, [*rewards, cost], strict=True))
        if waits is not None:
            at_end, too_far = at_end & ~waits, too_far & ~waits
            more, found = self._recover(info, distances)
            reward, metrics = reward + more["reward_recovery"], metrics | more
            info |= found
        info["truncation"] = (at_end & ~too_far).astype(jnp.float32)
        return dataclasses.replace(
            state,
            pipeline_state=pose,
            obs=self._observe(now, info),
            reward=reward,
            done=(at_end | too_far).astype(jnp.float32),
            metrics=metrics | {"distance": jnp.mean(distances)},
            info=info,
        )

    def _disturbances(self, key: Key) -> dict[str, Array]:
        """Return what `info` holds for pushes and recoveries, where settings ask for them."""
        info = {"rng": key} if self.config.push else {}
        if self._fallen is not None:
            info |= {"recovery": jnp.zeros(()), "gap": jnp.zeros(())}
        return info

    def _pushed(self, key: Key, qvel: Array, is_trial: Array) -> Array:
        """Return velocities after a push, if there is one in this step."""
        c = self.config
        speed = c.push if c.push_trials else jnp.where(is_trial > 0, 0.0, c.push)
        return disturbances.pushed(key, qvel, speed, min(1.0, 1.0 / (FPS * c.push_every)))

    def _some_fallen(self, state: base.State, key: Key) -> base.State:
        """Return a start, or in a fraction of all cases one on the ground at the same place."""
        assert self._fallen is not None
        key_whether, key_which, key_yaw = jax.random.split(key, 3)
        falls = jax.random.uniform(key_whether) < self.config.fallen_starts
        number = jax.random.randint(key_which, (), 0, len(self._fallen))
        yaw = jax.random.uniform(key_yaw, (), jnp.float32, -math.pi, math.pi)
        pose: Any = state.pipeline_state
        lying = disturbances.lying_at(self._fallen[number], yaw, pose.qpos[:3])
        pose = pose.replace(
            qpos=jnp.where(falls, lying, pose.qpos), qvel=jnp.where(falls, 0.0, pose.qvel)
        )
        now = self.humanoid.body_motion(pose)
        info = dict(state.info)
        info["recovery"] = jnp.where(falls, self.config.recovery_seconds, 0.0)
        info["gap"] = jnp.mean(observations.body_distances(now, self.reference(info)))
        if "amp" in info:  # a body on the ground has no history in its clip
            info["amp"] = jnp.where(falls, 0.0, info["amp"])
        obs = self._observe(now, info)
        return dataclasses.replace(state, pipeline_state=pose, obs=obs, info=info)

    def _recover(
        self, info: dict[str, Array], distances: Array
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the metrics of a recovery after a step, and what becomes of `info`."""
        step = disturbances.advance(info["recovery"], distances, self.config.distance, self.dt)
        gap = jnp.mean(distances)
        nearer = jnp.where(step.waits, info["gap"] - gap, 0.0)
        metrics = {
            "reward_recovery": disturbances.REWARD_PER_METRE * nearer,
            "recovering": step.waits.astype(jnp.float32),
            "recovered": step.succeeded.astype(jnp.float32),
        }
        return metrics, {"recovery": step.left, "gap": gap}

    @property
    def _metric_names(self) -> tuple[str, ...]:
        recovery = () if self._fallen is None else _RECOVERY
        return (*_TERMS, *recovery, "distance")

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


def episode_length(frames: int, config: MotionConfig) -> int:
    """Return more steps than the longest clip takes, played slowly and after a recovery."""
    waits = math.ceil(config.recovery_seconds * FPS) if config.fallen_starts else 0
    return math.ceil(frames / (1.0 - config.speed)) + waits + 2


def next_frame(time: Array) -> Array:
    """Return the time of a clip's next frame; sums of 1/30 s would drift in long clips."""
    return (jnp.round(time * FPS) + 1.0) / FPS
