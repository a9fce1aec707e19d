"""How a humanoid moves, for a discriminator to judge: the last frames of what its joints do.

Frames are seen from the heading frame, so that only the manner counts, never the place. What the
library shows and what the physics does are described by the same function.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.motion import library as libraries
from jaxrl.motion import rotations
from jaxrl.motion.library import Library, Reference
from jaxrl.motion.skeleton import Skeleton
from jaxrl.types import Array, Key


class AMPFeatures(NamedTuple):
    """Describes `frames` frames of a skeleton's motion, oldest first."""

    skeleton: Skeleton
    frames: int

    @property
    def tips(self) -> tuple[int, ...]:
        """Bodies at the ends of limbs: hands, feet, head."""
        bodies = range(len(self.skeleton.bodies))
        return tuple(body for body in bodies if body not in self.skeleton.parents)

    def frame(self, now: Reference) -> Array:
        """Return one frame's numbers: root, joints and the places of the tips."""
        turn = rotations.unheading(now.rotation[..., 0, :])
        tips = now.position[..., self.tips, :] - now.position[..., :1, :]
        wide = jnp.broadcast_to(turn[..., None, :], (*tips.shape[:-1], 4))
        parts = [
            now.position[..., 0, 2:],
            rotations.six_d(rotations.multiply(turn, now.rotation[..., 0, :])),
            rotations.rotate(turn, now.velocity[..., 0, :]),
            rotations.rotate(turn, now.spin[..., 0, :]),
            self._joints(now.qpos),
            now.qvel[..., 6:],
            rotations.rotate(wide, tips).reshape(*tips.shape[:-2], -1),
        ]
        return jnp.concatenate(parts, -1)

    def _joints(self, qpos: Array) -> Array:
        parts = [
            rotations.six_d(rotations.normalize(qpos[..., joint.columns]))
            if joint.kind == "ball"
            else qpos[..., joint.columns]
            for joint in self.skeleton.joints[1:]
        ]
        return jnp.concatenate(parts, -1)

    def history(
        self, library: Library, clip: Array, time: Array, *, captured: bool = False
    ) -> Array:
        """Return the frames of a clip up to a moment, [frames, numbers]; zeros before its start."""
        ago = jnp.arange(self.frames - 1, -1, -1).astype(jnp.float32) / library.fps
        same = jnp.broadcast_to(clip, ago.shape)
        shown = self.frame(libraries.query(library, same, time - ago, captured=captured))
        return jnp.where((time - ago > -0.5 / library.fps)[:, None], shown, 0.0)

    def pushed(self, history: Array, now: Reference) -> Array:
        """Add the newest frame and drop the oldest."""
        return jnp.concatenate([history[1:], self.frame(now)[None]])

    def window(self, history: Array) -> Array:
        """Return a history as one row; zeros while it reaches back before its clip's start.

        No demonstration looks like such a history, so a discriminator must not judge it. A frame
        that exists is never all zeros: a rotation has an entry of at least a half.
        """
        return jnp.where(jnp.any(history[0] != 0.0), history, 0.0).reshape(-1)

    def demonstrations(self, library: Library, key: Key, number: int) -> Array:
        """Draw histories from the clips, evenly over the moments that have a whole one.

        Returns [number, frames · numbers]. Clips shorter than a history show none.
        """
        first = (self.frames - 1) / library.fps
        weights = jnp.where(library.frames >= self.frames, library.weights, 0.0)

        def one(key: Key) -> Array:
            clip, time = libraries.draw(library, key, weights, first=first)
            return self.history(library, clip, time, captured=True).reshape(-1)

        return jax.vmap(one)(jax.random.split(key, number))
