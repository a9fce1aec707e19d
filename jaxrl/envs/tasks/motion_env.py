"""The base of environments with motion clips: a humanoid, a library, and starts in its clips."""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# Brax declares these sizes as properties; class attributes are simpler, and Brax reads them alike.

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.config import MotionConfig
from jaxrl.errors import UserError
from jaxrl.motion import clip as clips
from jaxrl.motion import library as libraries
from jaxrl.motion import mirroring, skeleton, synthetic
from jaxrl.motion.amp_features import AMPFeatures
from jaxrl.motion.clip import FPS, Clip
from jaxrl.motion.clip_store import ClipStore
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.library import Library, Reference
from jaxrl.physics.precision import physics
from jaxrl.types import Array, Key, PyTree

# Where in the clips an episode is, part of its `info`: the clip, the time in seconds as the clip is
# played, and the yaw; `mirrored` (0 or 1) and `clip_speed` where settings ask for them.
Place = dict[str, Array]


class MotionEnv(base.Env):
    """A humanoid that starts at times of clips; `use_amp` adds AMP's features to observations."""

    backend: str = "mjx"
    dt = 1.0 / FPS

    def __init__(
        self, config: MotionConfig, humanoid: Humanoid, library: Library, *, use_amp: bool = False
    ):
        self.config, self.humanoid, self.library = config, humanoid, library
        self._amp = AMPFeatures(humanoid.skeleton, config.amp_frames) if use_amp else None
        skeleton = humanoid.skeleton
        self._mirror = mirroring.build(skeleton, humanoid.servos) if config.mirror else None
        longest = int(np.max(library.frames))
        if use_amp and longest < config.amp_frames:
            raise UserError(
                f"--motion.amp-frames {config.amp_frames}: the longest clip has {longest} "
                "frames; use fewer."
            )
        refuse_other_speeds(config, library.planned)

    @property
    def num_clips(self) -> int:
        """Number of clips in the library."""
        return len(self.library.names)

    def memory_sizes(self) -> dict[str, int]:
        """Return the size of the clips on the device; arrays that are the same count once."""
        arrays = {id(leaf): leaf.nbytes for leaf in jax.tree.leaves(self.library)}
        return {f"{self.num_clips:,} motion clips": sum(arrays.values())}

    @property
    def mj_model(self) -> Any:
        """The model to render."""
        return self.humanoid.model

    @property
    def action_size(self) -> int:
        """One target per servo."""
        return self.humanoid.num_actuators

    @property
    def observation_size(self) -> Any:
        """Sizes of observations."""
        with physics():
            start = jax.eval_shape(self.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
        return jax.tree.map(lambda leaf: leaf.shape[0], start.obs)

    def demonstrations(self, key: Key, number: int) -> Array:
        """Sample AMP features from the clips, [number, features]."""
        if self._amp is None:
            raise ValueError("this environment has no AMP features")
        return self._amp.demonstrations(self.library, key, number, self._mirror)

    def sample_start(self, rng: Key, weights: Array | None = None) -> Place:
        """Sample a clip, how it is played, a time (with at least one frame left), and a yaw."""
        key_clip, key_yaw, key_start, key_mirror, key_speed = jax.random.split(rng, 5)
        clip, time = libraries.sample(self.library, key_clip, weights)
        place = {"clip": clip, "time": time, "yaw": jnp.zeros(())}
        if self._mirror is not None:
            place["mirrored"] = jax.random.bernoulli(key_mirror).astype(jnp.float32)
        if self.config.speed:
            low, high = 1.0 - self.config.speed, 1.0 + self.config.speed
            place["clip_speed"] = jax.random.uniform(key_speed, (), jnp.float32, low, high)
            time = time / place["clip_speed"]
        time, last = jnp.round(time * FPS) / FPS, self.duration(place) - 1.0 / FPS
        if self.config.speed:  # a slower clip need not last a whole number of frames
            last = jnp.maximum(jnp.floor(last * FPS + 1e-3), 0.0) / FPS
        time = jnp.clip(time, 0.0, last)
        fraction = {"random": 0.0, "start": 1.0, "hybrid": self.config.hybrid_fraction}
        from_start = jax.random.uniform(key_start) < fraction[self.config.start]
        yaw = jax.random.uniform(key_yaw, (), jnp.float32, -math.pi, math.pi)
        yaw = yaw if self.config.random_heading else jnp.zeros(())
        return place | {"time": jnp.where(from_start, 0.0, time), "yaw": yaw}

    def start_of(self, clip: Array) -> Place:
        """Return the beginning of a clip as it is."""
        place = {"clip": clip, "time": jnp.zeros(()), "yaw": jnp.zeros(())}
        place |= {} if self._mirror is None else {"mirrored": jnp.zeros(())}
        return place | ({"clip_speed": jnp.ones(())} if self.config.speed else {})

    def duration(self, place: Place) -> Array:
        """Return the seconds that a clip lasts as it is played."""
        seconds = libraries.duration(self.library, place["clip"])
        return seconds / place["clip_speed"] if self.config.speed else seconds

    def reference(self, place: Place, ahead: float = 0.0, *, captured: bool = False) -> Reference:
        """Return the motion at a place, or some seconds after it."""
        time = self._clip_time(place, ahead)
        motion = libraries.query(self.library, place["clip"], time, captured=captured)
        if "recovery" in place:  # a clip that waits stands still
            motion = libraries.at_speed(motion, jnp.where(place["recovery"] > 0.0, 0.0, 1.0))
        return libraries.rotate_yaw(self._as_played(place, motion), place["yaw"])

    def feedforward(self, place: Place) -> Array:
        """Return the offsets of servo targets at a place, [nu]."""
        offsets = libraries.feedforward(self.library, place["clip"], self._clip_time(place))
        if self._mirror is None:
            return offsets
        return jnp.where(place["mirrored"] > 0, self._mirror.targets(offsets), offsets)

    def _clip_time(self, place: Place, ahead: float = 0.0) -> Array:
        time = place["time"] + ahead if ahead else place["time"]
        return time * place["clip_speed"] if self.config.speed else time

    def _as_played(self, place: Place, motion: Reference) -> Reference:
        """Return motions of a clip at the speed and on the side of an episode."""
        if self.config.speed:
            motion = libraries.at_speed(motion, place["clip_speed"])
        if self._mirror is not None:
            motion = self._mirror.where(place["mirrored"] > 0, motion)
        return motion

    def amp_history(self, place: Place) -> dict[str, Array]:
        """Return the frames before a place, for `info`; {} without AMP.

        Frames before the clip's start are zeros.
        """
        if self._amp is None:
            return {}
        played = functools.partial(self._as_played, place)
        history = self._amp.history(self.library, place["clip"], place["time"], change=played)
        return {"amp": history}

    def next_amp_history(self, info: dict[str, Array], now: Reference) -> dict[str, Array]:
        """Return the same with the newest frame appended."""
        if self._amp is None:
            return {}
        return {"amp": self._amp.append(info["amp"], now)}

    def with_amp(self, obs: Array, info: dict[str, Array]) -> PyTree:
        """Return the observation, with AMP's features beside it if there are any."""
        if self._amp is None:
            return obs
        return {"state": obs, "amp": self._amp.window(info["amp"])}

    def absolute_target(self, action: Array) -> Array:
        """Return servo targets for actions that span their ranges; 0 is the rest pose."""
        low, high, rest = self.humanoid.low, self.humanoid.high, self.humanoid.rest
        action = jnp.clip(action, -1.0, 1.0)
        action_range = jnp.where(action > 0.0, high - rest, rest - low)
        return jnp.asarray(rest) + action * action_range


def refuse_other_speeds(config: MotionConfig, planned: Sequence[str]) -> None:
    """Raise UserError if clips with plans were to be played slower or faster."""
    if config.speed and planned:
        raise UserError(
            f"--motion.speed {config.speed:g}: clip '{planned[0]}' has a plan, which is feasible "
            "at its own speed only; use 0, or clips without plans."
        )


def load_parts(config: MotionConfig) -> tuple[MotionConfig, Humanoid, Library]:
    """Return the constructor arguments of a motion environment."""
    model = skeleton.load_model(str(config.model) if config.model else None)
    return config, Humanoid(model, FPS, config.substeps), _library(config, model)


def load_store(config: MotionConfig) -> tuple[MotionConfig, Humanoid, ClipStore] | None:
    """Return the same with the clips on the CPU; None if `max_clips` are all of them."""
    model = skeleton.load_model(str(config.model) if config.model else None)
    store = ClipStore(_crops(config, model), model, config.max_clips)
    if len(store.names) <= config.max_clips:
        return None
    return config, Humanoid(model, FPS, config.substeps), store


def _library(config: MotionConfig, model: Any) -> Library:
    crops = list(_crops(config, model))
    libraries.refuse_same_names(crop.name for crop in crops)
    return libraries.build(crops, model, FPS)


def _crops(config: MotionConfig, model: Any) -> Iterator[Clip]:
    """Read the clips, or synthesise one, and cut long ones into crops; one clip at a time."""
    for clip in _clips(config, model):
        yield from _cut(clip, config, model)


def _clips(config: MotionConfig, model: Any) -> Iterator[Clip]:
    """Read the clips, or synthesise one; looping ones are repeated for `loop_seconds`."""
    if config.clips:
        path, seconds = str(config.clips), config.loop_seconds
        for clip in libraries.read_clips(path, model, seconds, config.split):
            yield clip if config.plans else clip._replace(plan=None)
        return
    synthesised = synthetic.stepping(skeleton.describe(model))
    cycles = max(1, math.ceil(config.loop_seconds / synthesised.seconds))
    yield clips.repeat_cycles(synthesised, cycles, model)


def _cut(clip: Clip, config: MotionConfig, model: Any) -> list[Clip]:
    if clip.plan is not None and clip.plan.substeps != config.substeps:
        raise UserError(
            f"Clip '{clip.name}' was planned with {clip.plan.substeps} physics steps per "
            f"frame, not --motion.substeps {config.substeps}."
        )
    return clips.cut(clip, config.crop_seconds, model)
