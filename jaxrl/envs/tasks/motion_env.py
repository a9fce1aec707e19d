"""What environments made of motion clips share: a humanoid, a library, and starts in it."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.config import MotionConfig
from jaxrl.envs.env_state import physics
from jaxrl.errors import UserError
from jaxrl.motion import clip as clips
from jaxrl.motion import library as libraries
from jaxrl.motion import skeleton, synthetic
from jaxrl.motion.amp_features import AMPFeatures
from jaxrl.motion.clip import FPS
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.library import Library, Reference
from jaxrl.types import Array, Key, PyTree


class MotionEnv(base.Env):
    """A humanoid that starts in moments of clips; `with_amp`: it also shows how it moves."""

    backend: str = "mjx"
    dt = 1.0 / FPS

    def __init__(
        self, config: MotionConfig, figure: Humanoid, library: Library, *, with_amp: bool = False
    ):
        self.config, self.figure, self.library = config, figure, library
        self._style = AMPFeatures(figure.skeleton, config.amp_frames) if with_amp else None
        longest = int(np.max(library.frames))
        if with_amp and longest < config.amp_frames:
            raise UserError(
                f"--motion.amp-frames {config.amp_frames}: the longest clip has {longest} "
                "frames; use fewer."
            )

    @property
    def num_clips(self) -> int:
        """Clips of the library."""
        return len(self.library.names)

    @property
    def mj_model(self) -> Any:
        """The humanoid, as it is drawn."""
        return self.figure.model

    @property
    def action_size(self) -> int:
        """One number for every servo."""
        return self.figure.num_actuators

    @property
    def observation_size(self) -> Any:
        """Numbers seen."""
        with physics():
            start = jax.eval_shape(self.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
        return jax.tree.map(lambda leaf: leaf.shape[0], start.obs)

    def demonstrations(self, key: Key, number: int) -> Array:
        """Draw histories of frames from the clips, [number, numbers]."""
        if self._style is None:
            raise ValueError("this environment shows no style")
        return self._style.demonstrations(self.library, key, number)

    def moment(self, rng: Key, weights: Array | None = None) -> tuple[Array, Array, Array]:
        """Draw a clip, a moment of it (with one frame to follow at least), and a heading."""
        key_clip, key_turn, key_start = jax.random.split(rng, 3)
        clip, time = libraries.draw(self.library, key_clip, weights)
        time = jnp.round(time * FPS) / FPS
        time = jnp.clip(time, 0.0, libraries.length(self.library, clip) - 1.0 / FPS)
        share = {"random": 0.0, "start": 1.0, "hybrid": self.config.hybrid_share}
        from_start = jax.random.uniform(key_start) < share[self.config.start]
        turn = jax.random.uniform(key_turn, (), jnp.float32, -math.pi, math.pi)
        turn = turn if self.config.random_heading else jnp.zeros(())
        return clip, jnp.where(from_start, 0.0, time), turn

    def reference(
        self, clip: Array, time: Array, turn: Array, *, captured: bool = False
    ) -> Reference:
        """Return what a clip shows at a time, turned about the vertical."""
        return libraries.turned(libraries.query(self.library, clip, time, captured=captured), turn)

    def amp_before(self, clip: Array, time: Array) -> dict[str, Array]:
        """Return the frames that led to a moment of a clip, to be carried in `info`.

        Where the clip does not go back that far, they are zeros.
        """
        if self._style is None:
            return {}
        return {"amp": self._style.history(self.library, clip, time)}

    def amp_after(self, info: dict[str, Array], now: Reference) -> dict[str, Array]:
        """Return the same with the newest frame added."""
        if self._style is None:
            return {}
        return {"amp": self._style.pushed(info["amp"], now)}

    def seen(self, view: Array, info: dict[str, Array]) -> PyTree:
        """Return an observation: the view, and beside it the style where it is shown."""
        if self._style is None:
            return view
        return {"state": view, "amp": self._style.window(info["amp"])}

    def absolute_target(self, action: Array) -> Array:
        """Return servo targets for actions that span their ranges; 0 is the pose at rest."""
        low, high, rest = self.figure.low, self.figure.high, self.figure.rest
        action = jnp.clip(action, -1.0, 1.0)
        reach = jnp.where(action > 0.0, high - rest, rest - low)
        return jnp.asarray(rest) + action * reach


def load_parts(config: MotionConfig) -> tuple[MotionConfig, Humanoid, Library]:
    """Build what such an environment is made of."""
    model = skeleton.load_model(str(config.model) if config.model else None)
    return config, Humanoid(model, FPS, config.substeps), _library(config, model)


def _library(config: MotionConfig, model: Any) -> Library:
    """Read the clips, or make one up; those that loop go on for as long as the settings ask."""
    if config.clips:
        found = libraries.read(str(config.clips), model, config.loop_seconds)
        for clip in found:
            if clip.plan is not None and clip.plan.substeps != config.substeps:
                raise UserError(
                    f"Clip '{clip.name}' was planned with {clip.plan.substeps} steps of physics "
                    f"for each frame, not --motion.substeps {config.substeps}."
                )
        return libraries.build(found, model, FPS)
    made = synthetic.stepping(skeleton.describe(model))
    cycles = max(1, math.ceil(config.loop_seconds / made.seconds))
    return libraries.build([clips.cycles(made, cycles, model)], model, FPS)
