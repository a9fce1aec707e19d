"""Follow motion capture with a physical humanoid, in the interface of a Brax environment.

An episode shows one clip from some moment on. Every control step the humanoid sees itself and the
clip's next frames, and is paid for being where the clip is. It ends when a body strays too far, and
is cut (not ended: the future still has value) where the clip is over.
"""

import dataclasses
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base

from jaxrl.config import MotionConfig
from jaxrl.motion import clip as clips
from jaxrl.motion import formats, ground, resampling, skeleton, views
from jaxrl.motion import library as libraries
from jaxrl.motion.clip import Clip
from jaxrl.motion.figure import Figure, Pose
from jaxrl.motion.library import Library, Reference
from jaxrl.motion.resampling import Resampling
from jaxrl.types import Array, Key

_FPS = 30.0
_MINOR = ("wrist", "hand", "toe")  # of bodies whose place does not decide on success


class Imitation(base.Env):
    """Track the clips of a library."""

    backend: str = "mjx"

    def __init__(self, config: MotionConfig, figure: Figure, library: Library):
        self.config, self.figure, self.library = config, figure, library
        longest = float(max(libraries.length(library, jnp.arange(self.num_clips))))
        # The clip's end cuts an episode first.
        self.episode_length = math.ceil(longest * _FPS) + 2

    @property
    def num_clips(self) -> int:
        """Clips of the library."""
        return len(self.library.names)

    @property
    def observation_size(self) -> int:
        """Numbers seen."""
        return 15 * len(self.figure.skeleton.bodies) - 2 + self._goal_size

    @property
    def _goal_size(self) -> int:
        return 24 * len(self.figure.skeleton.bodies) * len(self.config.future)

    @property
    def action_size(self) -> int:
        """One number for every servo."""
        return self.figure.num_actuators

    @property
    def num_trials(self) -> int:
        """An evaluation plays every clip once."""
        return self.num_clips

    def first_curriculum(self) -> Resampling:
        """Return how likely each clip is drawn, to begin with."""
        return jax.tree.map(np.asarray, resampling.init(self.num_clips))

    def reset(self, rng: Key, curriculum: Resampling | None = None) -> base.State:
        """Start in a moment of a clip, both drawn, turned any way."""
        key_clip, key_turn, key_start = jax.random.split(rng, 3)
        weights = curriculum.weights if curriculum else None
        clip, time = libraries.draw(self.library, key_clip, weights)
        time = jnp.round(time * _FPS) / _FPS
        # The last frame leaves nothing to follow.
        time = jnp.clip(time, 0.0, libraries.length(self.library, clip) - 1.0 / _FPS)
        share = {"random": 0.0, "start": 1.0, "hybrid": self.config.hybrid_share}
        from_start = jax.random.uniform(key_start) < share[self.config.start]
        turn = jax.random.uniform(key_turn, (), jnp.float32, -math.pi, math.pi)
        turn = turn if self.config.random_heading else jnp.zeros(())
        return self._begin(clip, jnp.where(from_start, 0.0, time), turn)

    def trial(self, clip: Array) -> base.State:
        """Start at the beginning of a clip, as it was captured; the end is the clip's alone."""
        return self._begin(clip, jnp.zeros(()), jnp.zeros(()), judged=True)

    def record(self, state: base.State) -> dict[str, Array]:
        """Return where all bodies are and should be: what tracking is judged by."""
        info, pose = state.info, cast(Pose, state.pipeline_state)
        meant = self._reference(info["clip"], info["time"], info["turn"])
        minor = [any(part in name for part in _MINOR) for name in self.figure.skeleton.bodies]
        return {
            "played": self.figure.shown(pose).position,
            "meant": meant.position,
            "counts": jnp.asarray([not is_minor for is_minor in minor]),
        }

    def _begin(self, clip: Array, time: Array, turn: Array, judged: bool = False) -> base.State:
        shown = self._reference(clip, time, turn)
        pose = self.figure.start(shown.qpos, shown.qvel)
        info = {"clip": clip, "time": time, "turn": turn, "truncation": jnp.zeros(())}
        info["judged"] = jnp.asarray(judged, jnp.float32)
        names = (*views.Terms._fields, "power")
        metrics = {f"reward_{name}": jnp.zeros(()) for name in names}
        return base.State(
            pipeline_state=pose,  # type: ignore[arg-type]
            obs=self._observe(self.figure.shown(pose), info),
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics=metrics | {"distance": jnp.zeros(())},
            info=info,
        )

    def step(self, state: base.State, action: Array) -> base.State:
        """Aim the servos, wait for the next frame, and compare."""
        info = dict(state.info)
        info["time"] = info["time"] + 1.0 / _FPS
        meant = self._reference(info["clip"], info["time"], info["turn"])
        pose: Any = state.pipeline_state
        pose, power = self.figure.move(pose, self._target(meant, action))
        now = self.figure.shown(pose)
        terms = views.terms(now, meant, self.config.scales)
        earned = [w * term for w, term in zip(self.config.weights, terms, strict=True)]
        cost = -self.config.power_coef * power
        apart = views.distances(now, meant)
        lost = jnp.max(apart) > self.config.distance
        over = info["time"] >= libraries.length(self.library, info["clip"]) - 0.5 / _FPS
        lost = lost & (info["judged"] == 0)
        info["truncation"] = (over & ~lost).astype(jnp.float32)
        names = [f"reward_{name}" for name in (*views.Terms._fields, "power")]
        done = (over | lost).astype(jnp.float32)
        return dataclasses.replace(
            state,
            pipeline_state=pose,
            obs=self._observe(now, info),
            reward=sum(earned) + cost,
            done=done,
            metrics=dict(zip(names, [*earned, cost], strict=True))
            | {"distance": jnp.mean(apart)},
            info=info,
        )

    def _target(self, meant: Reference, action: Array) -> Array:
        """Return what the servos aim at: around the clip's next pose, or around the rest pose."""
        action = jnp.clip(action, -1.0, 1.0)
        if self.config.residual:
            return self.figure.angles(meant.qpos) + self.config.action_scale * action
        half = 0.5 * (self.figure.high - self.figure.low)
        return 0.5 * (self.figure.high + self.figure.low) + half * action

    def _reference(self, clip: Array, time: Array, turn: Array) -> Reference:
        return libraries.turned(libraries.query(self.library, clip, time), turn)

    def _observe(self, now: Reference, info: dict[str, Array]) -> Array:
        parts = [views.own(now)]
        for ahead in self.config.future:
            time = info["time"] + ahead / _FPS
            parts.append(views.goal(now, self._reference(info["clip"], time, info["turn"])))
        return jnp.concatenate(parts)


def make(config: MotionConfig) -> Imitation:
    """Build the environment that the settings describe."""
    model = skeleton.load_model(str(config.model) if config.model else None)
    figure = Figure(model, _FPS, config.substeps)
    return Imitation(config, figure, library_of(config, model))


def library_of(config: MotionConfig, model: Any) -> Library:
    """Read the clips; those that loop go on for as long as the settings ask."""
    read = formats.read(str(config.clips), skeleton.describe(model))
    grounded = [ground.grounded(clip, model) for clip in read]
    long = [_unrolled(clip, config.loop_seconds, model) for clip in grounded]
    return libraries.build(long, model, _FPS)


def _unrolled(clip: Clip, seconds: float, model: Any) -> Clip:
    if not clip.loops or clip.seconds >= seconds:
        return clip
    return clips.cycles(clip, math.ceil(seconds / clip.seconds), model)
