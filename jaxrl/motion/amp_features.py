"""Features of AMP's discriminator: the last frames of a humanoid's motion.

Frames are in the heading frame, so that position and direction do not count. Reference motions and
simulated ones are described by the same function.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.motion import library as libraries
from jaxrl.motion import rotations
from jaxrl.motion.library import Library, Reference
from jaxrl.motion.mirroring import Mirror
from jaxrl.motion.skeleton import Skeleton
from jaxrl.types import Array, Key


def _unchanged(motion: Reference) -> Reference:
    return motion


class AMPFeatures(NamedTuple):
    """Features of `frames` frames of a skeleton's motion, oldest first."""

    skeleton: Skeleton
    frames: int

    @property
    def end_effectors(self) -> tuple[int, ...]:
        """Bodies at the ends of limbs: hands, feet, head."""
        bodies = range(len(self.skeleton.bodies))
        return tuple(body for body in bodies if body not in self.skeleton.parents)

    def frame(self, now: Reference) -> Array:
        """Return one frame's features: root, joints, and positions of the end effectors."""
        heading = rotations.inverse_heading(now.rotation[..., 0, :])
        tips = now.position[..., self.end_effectors, :] - now.position[..., :1, :]
        wide = jnp.broadcast_to(heading[..., None, :], (*tips.shape[:-1], 4))
        parts = [
            now.position[..., 0, 2:],
            rotations.rot6d(rotations.multiply(heading, now.rotation[..., 0, :])),
            rotations.rotate(heading, now.velocity[..., 0, :]),
            rotations.rotate(heading, now.spin[..., 0, :]),
            self._joints(now.qpos),
            now.qvel[..., 6:],
            rotations.rotate(wide, tips).reshape(*tips.shape[:-2], -1),
        ]
        return jnp.concatenate(parts, -1)

    def _joints(self, qpos: Array) -> Array:
        parts = [
            rotations.rot6d(rotations.normalize(qpos[..., joint.columns]))
            if joint.kind == "ball"
            else qpos[..., joint.columns]
            for joint in self.skeleton.joints[1:]
        ]
        return jnp.concatenate(parts, -1)

    def history(
        self,
        library: Library,
        clip: Array,
        time: Array,
        *,
        captured: bool = False,
        change: Callable[[Reference], Reference] = _unchanged,
    ) -> Array:
        """Return a clip's frames up to a time, [frames, features]; zeros before its start.

        `change` maps the motion to what the features are of, as its mirror image.
        """
        ago = jnp.arange(self.frames - 1, -1, -1).astype(jnp.float32) / library.fps
        clips = jnp.broadcast_to(clip, ago.shape)
        motion = libraries.query(library, clips, time - ago, captured=captured)
        frames = self.frame(change(motion))
        return jnp.where((time - ago > -0.5 / library.fps)[:, None], frames, 0.0)

    def append(self, history: Array, now: Reference) -> Array:
        """Append the newest frame and drop the oldest."""
        return jnp.concatenate([history[1:], self.frame(now)[None]])

    def window(self, history: Array) -> Array:
        """Return a history as one row; zeros while it reaches back before its clip's start.

        No demonstration looks like such a history, so the discriminator must not score it. A real
        frame is never all zeros: a rotation has an entry of at least a half.
        """
        return jnp.where(jnp.any(history[0] != 0.0), history, 0.0).reshape(-1)

    def demonstrations(
        self, library: Library, key: Key, number: int, mirror: Mirror | None = None
    ) -> Array:
        """Sample histories from the clips; each that a clip holds is equally likely.

        Returns [number, frames · features]. Clips shorter than a history have none. With `mirror`,
        each is mirrored with a probability of a half.
        """
        key_times, key_mirror = jax.random.split(key)
        clip, time = self.sample_times(library, key_times, number)
        mirrored = jax.random.bernoulli(key_mirror, shape=(number,))

        def one(clip: Array, time: Array, mirrored: Array) -> Array:
            change = functools.partial(mirror.where, mirrored) if mirror else _unchanged
            return self.history(library, clip, time, captured=True, change=change).reshape(-1)

        return jax.vmap(one)(clip, time, mirrored)

    def sample_times(self, library: Library, key: Key, number: int) -> tuple[Array, Array]:
        """Sample clips [number], and the times [number] in seconds at which a history ends.

        A clip counts by the histories that it holds, one for each frame that may be the last: were
        clips equally likely, the few histories of a short one would be seen again and again.
        """
        earlier = self.frames - 1
        counts = jnp.maximum(library.frames - earlier, 0)
        ends = jnp.cumsum(counts)
        row = jax.random.randint(key, (number,), 0, ends[-1])
        clip = jnp.searchsorted(ends, row, side="right")
        frame = row - (ends - counts)[clip] + earlier
        return clip, frame.astype(jnp.float32) / library.fps
