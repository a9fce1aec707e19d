"""Track the clips of a library that is larger than the device.

At most `--motion.max-clips` clips are on the device at once, as an argument of the compiled
programs (`jaxrl.envs.hooks.SharedArrays`); the CPU holds the poses of all. After trials of the
resident clips another set is chosen by the weights of all clips, and all episodes start again:
those in progress follow clips that may be gone.
"""

import copy
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.config import MotionConfig, TrainConfig
from jaxrl.envs.hooks import TrialCondition, TrialEpisodes, TrialReport, TrialSchedule
from jaxrl.envs.tasks import tracking
from jaxrl.envs.tasks.imitation import Imitation, episode_length
from jaxrl.envs.tasks.motion_env import MotionEnv, refuse_other_speeds
from jaxrl.motion import clip_sampling
from jaxrl.motion.clip_sampling import Resampling, ResidentSet
from jaxrl.motion.clip_store import ClipStore, Resident
from jaxrl.motion.humanoid import Humanoid
from jaxrl.types import Array, Key


class StreamedImitation(MotionEnv):
    """Imitation of the resident clips of a store, which its functions take as an argument.

    Without the argument they use the first set.
    """

    trial_criteria = tracking.CRITERIA

    def __init__(self, config: MotionConfig, humanoid: Humanoid, store: ClipStore, seed: int = 0):
        refuse_other_speeds(config, store.planned)
        self.store, self._seed = store, seed
        first = self.first_curriculum()
        self._first = store.load(first.clips, first.weights)
        library = jax.tree.map(jnp.asarray, self._first.library)
        super().__init__(config, humanoid, library)
        self._imitation = Imitation(config, humanoid, library)

    def at(self, resident: Resident | None) -> Imitation:
        """Return the environment of a set, for use inside one trace."""
        env = copy.copy(self._imitation)
        if resident is not None:
            env.library = resident.library
        return env

    @property
    def num_clips(self) -> int:
        """Number of all clips."""
        return len(self.store.names)

    def memory_sizes(self) -> dict[str, int]:
        """Return the sizes of the resident clips, and of all of them on the CPU."""
        resident = sum(leaf.nbytes for leaf in jax.tree.leaves(self._first))
        return {
            f"{self.store.resident:,} resident motion clips": resident,
            f"{self.num_clips:,} clips on the CPU": self.store.num_bytes,
        }

    @property
    def episode_length(self) -> int:
        """More than the longest clip of all."""
        return episode_length(int(np.max(self.store.frames)), self.config)

    @property
    def num_trials(self) -> int:
        """An evaluation during training plays every resident clip once."""
        return self.store.resident

    @property
    def trial_names(self) -> tuple[str, ...]:
        """The names of all clips."""
        return self.store.names

    def first_curriculum(self) -> ResidentSet:
        """Return equal weights: a clip that was never played counts as failed once."""
        return self._next_set(clip_sampling.init(self.num_clips, failures=1.0))

    def trial_schedule(self) -> TrialSchedule:
        """Return what --motion.resample-interval and --motion.resample-deterministic say."""
        return TrialSchedule(self.config.resample_interval, self.config.resample_deterministic)

    def update_curriculum_from_trials(
        self, curriculum: ResidentSet, episodes: TrialEpisodes
    ) -> tuple[ResidentSet, dict[str, float]]:
        """Count the failures of the resident clips, and choose the next ones."""
        failed = self._imitation.failed_trials(episodes)
        sampling = clip_sampling.update(
            jax.tree.map(jnp.asarray, curriculum.sampling),
            jnp.asarray(failed),
            floor=self.config.resample_floor,
            decay=self.config.resample_decay,
            played=jnp.asarray(curriculum.clips),
        )
        after = self._next_set(sampling)
        return after, {
            "max_weight": np.max(after.sampling.weights),
            "failed_clips": np.sum(failed),
            "new_clips": len(np.setdiff1d(after.clips, curriculum.clips)),
        }

    def _next_set(self, sampling: Resampling) -> ResidentSet:
        """Choose a set; it follows from the seed and the state alone, so that a resume is exact."""
        rng = np.random.default_rng([self._seed, int(sampling.evaluations)])
        clips: Any
        weights: Any
        clips, weights = clip_sampling.choose_set(
            np.asarray(sampling.weights), self.store.resident, rng
        )
        return ResidentSet(jax.tree.map(np.asarray, sampling), clips, weights)

    def shared_arrays(self, curriculum: ResidentSet) -> Resident:
        """Return the resident clips of a curriculum."""
        if np.array_equal(curriculum.clips, self._first.clips):
            library = self._first.library.replace(weights=np.asarray(curriculum.weights))
            return self._first._replace(library=library)
        return self.store.load(curriculum.clips, curriculum.weights)

    def all_trials(self) -> Iterator[Resident]:
        """Return all clips, set by set in order; the last set is filled with the first clips."""
        size, count = self.store.resident, self.num_clips
        for first in range(0, count, size):
            numbers = np.arange(first, first + size) % count
            yield self.store.load(numbers, np.full(size, 1.0 / size))

    def with_trials(self, numbers: tuple[int, ...]) -> Imitation:
        """Return an environment of some of the clips, all on the device."""
        library = jax.tree.map(jnp.asarray, self.store.build(numbers))
        return Imitation(self.config, self.humanoid, library)

    def reset(
        self, rng: Key, curriculum: ResidentSet | None = None, resident: Resident | None = None
    ) -> base.State:
        """Start at a random time of a random resident clip, with a random yaw."""
        del curriculum  # its weights are part of the set
        return self.at(resident).reset(rng)

    def trial(self, clip: Array, resident: Resident | None = None) -> base.State:
        """Start at the beginning of a resident clip; only its end ends the episode."""
        return self.at(resident).trial(clip)

    def step(
        self, state: base.State, action: Array, resident: Resident | None = None
    ) -> base.State:
        """Set servo targets, simulate up to the next frame, and compare."""
        return self.at(resident).step(state, action)

    def record(self, state: base.State, resident: Resident | None = None) -> dict[str, Array]:
        """Return positions of all bodies, and which clip of the store this is."""
        clips = jnp.asarray((resident or self._first).clips)
        return self.at(resident).record(state) | {"clip": clips[state.info["clip"]]}

    def trial_conditions(self, config: TrainConfig) -> list[TrialCondition]:
        """Return the conditions of `jaxrl.evaluate`: without plans and pushed, where it applies."""
        return tracking.conditions(config)

    def trial_report(self, episodes: TrialEpisodes) -> TrialReport:
        """Return tracking errors and successes of the clips that were played."""
        names = self.store.names
        played = tuple(names[i] for i in _numbers(episodes))
        library = self.library.replace(names=played, planned=self.store.planned)
        return tracking.report(episodes, library, self.store.resident)

    def trial_success(self, episodes: TrialEpisodes) -> np.ndarray:
        """Return which of some clips were tracked to their end."""
        return tracking.evaluate(episodes.trace, episodes.lengths, self.store.resident).success

    def trial_poses(self, episodes: TrialEpisodes, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the poses of a trial and of its clip, [frames, nq] each."""
        count, clip = int(episodes.lengths[number]), _numbers(episodes)[number]
        qpos = np.asarray(episodes.trace["qpos"])[:count, number]
        captured = self.store.build([int(clip)]).captured_motion
        return qpos, np.asarray(captured.qpos)[1 : count + 1]


def _numbers(episodes: TrialEpisodes) -> np.ndarray:
    return np.asarray(episodes.trace["clip"])[0]
