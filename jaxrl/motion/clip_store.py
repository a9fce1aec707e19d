"""A library of clips on the CPU, of which some are loaded at a time.

Stored are the poses alone, in single precision: 140 bytes a frame of our humanoid, where a library
on the device takes 1.2 KB. Positions and velocities of bodies are computed when a clip is loaded.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np

from jaxrl.errors import UserError
from jaxrl.motion import library as libraries
from jaxrl.motion.clip import FPS, Clip, Plan, resample
from jaxrl.motion.library import Library
from jaxrl.types import Array


class Resident(NamedTuple):
    """The clips on the device: always arrays of the same shapes."""

    library: Library  # without names: they would be part of the compiled program
    clips: Any  # int32 [resident], their numbers in the store


class ClipStore:
    """All clips of a library, and the sets of them that are loaded."""

    def __init__(self, clips: Iterable[Clip], model: mujoco.MjModel, resident: int):
        """Read the clips one by one: at most one is in memory as it was in its file."""
        self._model, self.resident = model, resident
        self._clips = [_compact(clip, model) for clip in clips]
        libraries.refuse_same_names(self.names)
        # Every set must fit: this is the total of the longest ones.
        self.capacity = int(np.sort(self.frames)[-resident:].sum())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all clips."""
        return tuple(clip.name for clip in self._clips)

    @property
    def planned(self) -> tuple[str, ...]:
        """The names of the clips with a plan."""
        return tuple(clip.name for clip in self._clips if clip.plan is not None)

    @property
    def frames(self) -> np.ndarray:
        """The length of every clip."""
        return np.asarray([len(clip.qpos) for clip in self._clips])

    @property
    def num_bytes(self) -> int:
        """Memory of the poses on the CPU."""
        stored = [[clip.qpos, *(clip.plan[:3] if clip.plan else ())] for clip in self._clips]
        return sum(array.nbytes for arrays in stored for array in arrays)

    def build(self, numbers: Sequence[int] | np.ndarray) -> Library:
        """Return some of the clips as a library of their own, of NumPy arrays."""
        chosen = [_cast(self._clips[i], np.float64) for i in numbers]
        return libraries.build_on_cpu(chosen, self._model, FPS)

    def load(self, numbers: Array | np.ndarray, weights: Array | np.ndarray) -> Resident:
        """Return a set of `resident` clips as NumPy arrays, padded to the capacity."""
        if len(numbers) != self.resident:
            raise UserError(f"{len(numbers)} clips do not make a set of {self.resident}.")
        built = self.build(np.asarray(numbers))
        built = built.replace(
            captured=built.captured if self.planned else None,
            weights=np.asarray(weights, np.float32),
            names=(),
            planned=(),
        )

        def pad(frames: Array) -> np.ndarray:
            rest = [(0, self.capacity - len(frames))] + [(0, 0)] * (frames.ndim - 1)
            return np.pad(frames, rest)

        motion = (built.reference, built.feedforward, built.captured)
        reference, feedforward, captured = jax.tree.map(pad, motion)
        library = built.replace(reference=reference, feedforward=feedforward, captured=captured)
        return Resident(library, np.asarray(numbers, np.int32))


def _compact(clip: Clip, model: mujoco.MjModel) -> Clip:
    """Return a clip at our rate in single precision; a plan is valid at its own rate only."""
    return _cast(clip if clip.plan else resample(clip, FPS, model), np.float32)


def _cast(clip: Clip, dtype: type) -> Clip:
    plan = clip.plan
    if plan is not None:
        qpos, qvel, feedforward = (np.array(x, dtype) for x in plan[:3])
        plan = Plan(qpos, qvel, feedforward, plan.substeps)
    # Copied: a crop would keep the frames of its whole clip alive.
    return clip._replace(qpos=np.array(clip.qpos, dtype), plan=plan)
