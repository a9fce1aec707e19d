"""Motion clips as device arrays, which compiled programs look up at any time."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from jaxrl.config import clip_split
from jaxrl.errors import UserError
from jaxrl.motion import formats, ground, rotations, skeleton
from jaxrl.motion.clip import Clip, clamp_to_limits, repeat_cycles, resample
from jaxrl.types import Array, Key, PyTree


class Reference(NamedTuple):
    """The motion at one time; velocities are those of MuJoCo for this qpos and qvel."""

    qpos: Array  # [..., nq]
    qvel: Array  # [..., nv]; the root's spin and those of ball joints in the body's own frame
    position: Array  # [..., J, 3], of the bodies' frames in the world
    rotation: Array  # [..., J, 4]
    velocity: Array  # [..., J, 3], of the bodies' frames, in the world
    spin: Array  # [..., J, 3], angular velocities in the world


class Library(struct.PyTreeNode):
    """Clips of one model at one rate, end to end: memory is the sum of their lengths."""

    reference: Reference  # [all frames, ...], the motion to track
    feedforward: Array  # [all frames, nu], offsets of servo targets; 0 without a plan
    captured: Reference | None  # likewise, the captured motion; None: it is what is tracked
    start: Array  # int32 [clips], each clip's first frame
    frames: Array  # int32 [clips], how many each clip has
    weights: Array  # float32 [clips], sampling probabilities
    names: tuple[str, ...] = struct.field(pytree_node=False)
    planned: tuple[str, ...] = struct.field(pytree_node=False)  # names of the clips with a plan
    fps: float = struct.field(pytree_node=False)
    quaternions: tuple[int, ...] = struct.field(pytree_node=False)  # their first indices in qpos

    @property
    def captured_motion(self) -> Reference:
        """The captured motion, [all frames, ...]."""
        return self.reference if self.captured is None else self.captured

    def rows(self, clip: int) -> slice:
        """Return where the frames of a clip are; on the CPU only."""
        start = int(self.start[clip])
        return slice(start, start + int(self.frames[clip]))


def load_clips(path: str, model: mujoco.MjModel, min_seconds: float = 0.0) -> list[Clip]:
    """Read the clips of a file or folder and fit them to the model.

    Clips that loop are repeated until they last at least `min_seconds`.
    """
    return list(read_clips(path, model, min_seconds))


def read_clips(
    path: str,
    model: mujoco.MjModel,
    min_seconds: float = 0.0,
    split: clip_split.Split = "all",
) -> Iterator[Clip]:
    """Return the same clips one after the other: there may be no memory for all.

    With `split`, only those for training, or for testing.
    """
    files, bones = clip_split.chosen(formats.files(Path(path)), split), skeleton.describe(model)
    if not files:
        raise UserError(f"'{path}' has no clips of the split '{split}'; use another, or all.")
    refuse_same_names((file.stem for file in files), f"'{path}': ")
    for file in files:
        for clip in formats.read(file, bones):
            yield _fit(clip, bones, min_seconds)


def refuse_same_names(names: Iterable[str], where: str = "") -> None:
    """Raise UserError if two clips have the same name: results are reported by name."""
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise UserError(f"{where}{count} clips are called '{name}'; rename one.")


def _fit(clip: Clip, bones: skeleton.Skeleton, min_seconds: float) -> Clip:
    """Clamp a clip to the joint limits, put it on the ground, and repeat it if it loops."""
    if clip.plan is not None:
        return clip  # it was fitted before it was planned
    clip = ground.put_on_ground(clamp_to_limits(clip, bones), bones.model)
    count = math.ceil(min_seconds / clip.seconds)
    return repeat_cycles(clip, count, bones.model) if clip.loops and count > 1 else clip


def build(clips: Sequence[Clip], model: mujoco.MjModel, fps: float = 30.0) -> Library:
    """Compute positions, rotations and velocities of all clips, at one rate."""
    built = build_on_cpu(clips, model, fps)
    placed = jax.tree.map(jnp.asarray, built)
    # One array where both are the same.
    return placed if built.planned else placed.replace(captured=placed.reference)


def build_on_cpu(clips: Sequence[Clip], model: mujoco.MjModel, fps: float = 30.0) -> Library:
    """Return the same as NumPy arrays."""
    if not clips:
        raise UserError("A motion library needs at least one clip.")
    captured = [_captured(resample(clip, fps, model).qpos, fps, model) for clip in clips]
    tracked = [_tracked(*pair, fps, model) for pair in zip(clips, captured, strict=True)]
    frames: Any = np.asarray([len(one.qpos) for one in captured])
    start: Any = np.cumsum(frames) - frames
    weights: Any = np.full(len(frames), 1.0 / len(frames), np.float32)
    reference, offsets = zip(*tracked, strict=True)
    planned = tuple(clip.name for clip in clips if clip.plan is not None)
    joined = _join(captured)
    return Library(
        reference=_join(reference) if planned else joined,
        feedforward=_join(offsets),
        captured=joined,
        start=start.astype(np.int32),
        frames=frames.astype(np.int32),
        weights=weights,
        names=tuple(clip.name for clip in clips),
        planned=planned,
        fps=float(fps),
        quaternions=skeleton.describe(model).quaternions,
    )


def _join(clips: Sequence[PyTree]) -> PyTree:
    """Join clips [F, ...] end to end."""
    return jax.tree.map(lambda *x: np.concatenate(x).astype(np.float32), *clips)


def _tracked(
    clip: Clip, captured: Reference, fps: float, model: mujoco.MjModel
) -> tuple[Reference, np.ndarray]:
    """Return the motion to track, and the offsets of servo targets."""
    if clip.plan is None:
        return captured, np.zeros((len(captured.qpos), model.nu))
    if clip.fps != fps or len(clip.plan.qpos) != len(captured.qpos):
        raise UserError(
            f"Clip '{clip.name}' was planned at {clip.fps:g} frames per second; {fps:g} are used."
        )
    return _body_motion(clip.plan.qpos, clip.plan.qvel, model), clip.plan.feedforward


def _captured(qpos: np.ndarray, fps: float, model: mujoco.MjModel) -> Reference:
    return _body_motion(qpos, _velocities(qpos, fps, model), model)


def _body_motion(qpos: np.ndarray, qvel: np.ndarray, model: mujoco.MjModel) -> Reference:
    """Return the motion of all bodies in poses [F, nq], as NumPy arrays, by MuJoCo."""
    count, bodies = len(qpos), model.nbody - 1
    position, rotation = np.empty((count, bodies, 3)), np.empty((count, bodies, 4))
    motion = np.empty((count, bodies, 6))
    data = mujoco.MjData(model)
    for i in range(count):
        data.qpos[:], data.qvel[:] = qpos[i], qvel[i]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)
        position[i], rotation[i] = data.xpos[1:], data.xquat[1:]
        for body in range(bodies):
            kind = mujoco.mjtObj.mjOBJ_XBODY
            mujoco.mj_objectVelocity(model, data, kind, body + 1, motion[i, body], 0)
    parts = qpos, qvel, position, rotation, motion[..., 3:], motion[..., :3]
    return Reference(*cast(tuple[Array, ...], parts))


def _velocities(qpos: np.ndarray, fps: float, model: mujoco.MjModel) -> np.ndarray:
    """Return smoothed velocities [F, nv]: central differences, averaged over neighbours."""
    last = len(qpos) - 1
    velocities = np.empty((len(qpos), model.nv))
    for i, row in enumerate(velocities):
        before, after = max(i - 1, 0), min(i + 1, last)
        mujoco.mj_differentiatePos(model, row, (after - before) / fps, qpos[before], qpos[after])
    wide = np.pad(velocities, [(1, 1), (0, 0)], mode="edge")
    return 0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:]


def duration(library: Library, clip: Array) -> Array:
    """Return the seconds that clips last."""
    return (library.frames[clip] - 1).astype(jnp.float32) / library.fps


def query(library: Library, clip: Array, time: Array, *, captured: bool = False) -> Reference:
    """Interpolate clips [...] at times [...] in seconds, clamped to each clip's duration.

    Returns the motion to track, or the captured one.
    """
    motion = library.captured_motion if captured else library.reference
    row, fraction = _row_before(library, clip, time)
    a = jax.tree.map(lambda x: x[row], motion)
    b = jax.tree.map(lambda x: x[row + 1], motion)
    mixed = jax.tree.map(lambda x, y: x + _widened(fraction, x) * (y - x), a, b)
    columns = np.asarray(library.quaternions)[:, None] + np.arange(4)
    joints = rotations.slerp(
        a.qpos[..., columns], b.qpos[..., columns], _rows(fraction, len(columns))
    )
    rotation = rotations.slerp(a.rotation, b.rotation, _rows(fraction, a.rotation.shape[-2]))
    return mixed._replace(qpos=mixed.qpos.at[..., columns].set(joints), rotation=rotation)


def feedforward(library: Library, clip: Array, time: Array) -> Array:
    """Return the offsets of servo targets that reach a planned pose at a time, [..., nu]."""
    row, fraction = _row_before(library, clip, time)
    a, b = library.feedforward[row], library.feedforward[row + 1]
    return a + _widened(fraction, a) * (b - a)


def _row_before(library: Library, clip: Array, time: Array) -> tuple[Array, Array]:
    """Return the row of the frame before a time, and the fraction of the step to the next one."""
    last = library.frames[clip] - 1
    frame = jnp.clip(time * library.fps, 0.0, last.astype(jnp.float32))
    before = jnp.minimum(frame.astype(jnp.int32), last - 1)
    return library.start[clip] + before, frame - before.astype(jnp.float32)


def _widened(fraction: Array, like: Array) -> Array:
    return fraction.reshape(fraction.shape + (1,) * (like.ndim - fraction.ndim))


def _rows(fraction: Array, count: int) -> Array:
    return jnp.broadcast_to(fraction[..., None], (*fraction.shape, count))


def rotate_yaw(reference: Reference, yaw: Array) -> Reference:
    """Rotate references [...] about the vertical axis by angles [...]."""
    rotation = rotations.from_yaw(yaw)
    bodies = jnp.broadcast_to(
        rotation[..., None, :], (*yaw.shape, reference.rotation.shape[-2], rotation.shape[-1])
    )
    root = [
        rotations.rotate(rotation, reference.qpos[..., :3]),
        rotations.multiply(rotation, reference.qpos[..., 3:7]),
        reference.qpos[..., 7:],
    ]
    # The root's spin is in the root's own frame, which rotates with it.
    velocity = [rotations.rotate(rotation, reference.qvel[..., :3]), reference.qvel[..., 3:]]
    return Reference(
        qpos=jnp.concatenate(root, -1),
        qvel=jnp.concatenate(velocity, -1),
        position=rotations.rotate(bodies, reference.position),
        rotation=rotations.multiply(bodies, reference.rotation),
        velocity=rotations.rotate(bodies, reference.velocity),
        spin=rotations.rotate(bodies, reference.spin),
    )


def at_speed(reference: Reference, speed: Array) -> Reference:
    """Return references [...] of motion that is played `speed` times as fast."""
    return reference._replace(
        qvel=speed * reference.qvel,
        velocity=speed * reference.velocity,
        spin=speed * reference.spin,
    )


def sample(library: Library, key: Key, weights: Array | None = None) -> tuple[Array, Array]:
    """Sample a clip by weights (which need not sum to 1), and a time in it uniformly."""
    clip_key, time_key = jax.random.split(key)
    weights = library.weights if weights is None else weights
    clip = jax.random.categorical(clip_key, jnp.log(weights))
    return clip, jax.random.uniform(time_key) * duration(library, clip)
