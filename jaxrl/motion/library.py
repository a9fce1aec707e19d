"""Motion clips as arrays of the device, looked up at any time inside compiled programs."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from jaxrl.errors import UserError
from jaxrl.motion import formats, ground, rotations, skeleton
from jaxrl.motion.clip import Clip, cycles, limited, resample
from jaxrl.types import Array, Key, PyTree


class Reference(NamedTuple):
    """What a clip shows at one moment; velocities are those of MuJoCo for that qpos and qvel."""

    qpos: Array  # [..., nq]
    qvel: Array  # [..., nv]; the root's spin and those of ball joints in the body's own frame
    position: Array  # [..., J, 3], of the bodies' frames in the world
    rotation: Array  # [..., J, 4]
    velocity: Array  # [..., J, 3], of the bodies' frames, in the world
    spin: Array  # [..., J, 3], angular velocities in the world


class Library(struct.PyTreeNode):
    """Clips of one model at one rate, padded by their last frames to the longest's length."""

    reference: Reference  # [clips, frames, ...], what is followed
    push: Array  # [clips, frames, nu], how far beyond it servos must aim; 0 where that is unknown
    captured: Reference  # [clips, frames, ...], what was captured: the same, but for planned clips
    frames: Array  # int32 [clips]
    weights: Array  # float32 [clips], how likely each is drawn; they add up to 1
    names: tuple[str, ...] = struct.field(pytree_node=False)
    planned: tuple[str, ...] = struct.field(pytree_node=False)  # the names of those with a plan
    fps: float = struct.field(pytree_node=False)
    quaternions: tuple[int, ...] = struct.field(pytree_node=False)  # where they begin in qpos


def read(path: str, model: mujoco.MjModel, at_least: float = 0.0) -> list[Clip]:
    """Read the clips of a file or folder and fit them to the model.

    Clips that loop are repeated until they last at least so many seconds.
    """
    stem, count = Counter(file.stem for file in formats.files(Path(path))).most_common(1)[0]
    if count > 1:
        raise UserError(f"'{path}': {count} clips are called '{stem}'; rename one.")
    bones = skeleton.describe(model)
    return [_fitted(clip, bones, at_least) for clip in formats.read(path, bones)]


def _fitted(clip: Clip, bones: skeleton.Skeleton, at_least: float) -> Clip:
    """Keep a clip within the joints' limits, on the ground, and going for long enough."""
    if clip.plan is not None:
        return clip  # was fitted before it was planned
    clip = ground.grounded(limited(clip, bones), bones.model)
    count = math.ceil(at_least / clip.seconds)
    return cycles(clip, count, bones.model) if clip.loops and count > 1 else clip


def build(clips: Sequence[Clip], model: mujoco.MjModel, fps: float = 30.0) -> Library:
    """Compute all that the clips show, at one rate."""
    if not clips:
        raise UserError("A motion library needs at least one clip.")
    captured = [_captured(resample(clip, fps, model).qpos, fps, model) for clip in clips]
    followed = [_followed(*pair, fps, model) for pair in zip(clips, captured, strict=True)]
    frames = [len(one.qpos) for one in captured]
    reference, push = zip(*followed, strict=True)
    planned = tuple(clip.name for clip in clips if clip.plan is not None)
    shown = _stacked(captured)
    return Library(
        reference=_stacked(reference) if planned else shown,
        push=_stacked(push),
        captured=shown,
        frames=jnp.asarray(frames, jnp.int32),
        weights=jnp.full((len(frames),), 1.0 / len(frames), jnp.float32),
        names=tuple(clip.name for clip in clips),
        planned=planned,
        fps=float(fps),
        quaternions=skeleton.describe(model).quaternions,
    )


def _stacked(clips: Sequence[PyTree]) -> PyTree:
    """Put clips of [F, ...] into arrays of the device, each padded by its last frame."""
    longest = max(len(jax.tree.leaves(clip)[0]) for clip in clips)

    def padded(values: np.ndarray) -> np.ndarray:
        rest = [(0, longest - len(values))] + [(0, 0)] * (values.ndim - 1)
        return np.pad(values, rest, mode="edge")

    return jax.tree.map(
        lambda *x: jnp.asarray(np.stack([padded(one) for one in x]), jnp.float32), *clips
    )


def _followed(
    clip: Clip, captured: Reference, fps: float, model: mujoco.MjModel
) -> tuple[Reference, np.ndarray]:
    """Return what is followed, and how far beyond it servos must aim."""
    if clip.plan is None:
        return captured, np.zeros((len(captured.qpos), model.nu))
    if clip.fps != fps or len(clip.plan.qpos) != len(captured.qpos):
        raise UserError(
            f"Clip '{clip.name}' was planned at {clip.fps:g} frames per second; {fps:g} are used."
        )
    return _shown(clip.plan.qpos, clip.plan.qvel, model), clip.plan.push


def _captured(qpos: np.ndarray, fps: float, model: mujoco.MjModel) -> Reference:
    return _shown(qpos, _speeds(qpos, fps, model), model)


def _shown(qpos: np.ndarray, qvel: np.ndarray, model: mujoco.MjModel) -> Reference:
    """Return what poses [F, nq] show, as host arrays; MuJoCo moves the bodies."""
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
    shown = qpos, qvel, position, rotation, motion[..., 3:], motion[..., :3]
    return Reference(*cast(tuple[Array, ...], shown))


def _speeds(qpos: np.ndarray, fps: float, model: mujoco.MjModel) -> np.ndarray:
    """Return smoothed speeds [F, nv]: differences across each frame, then over its neighbours."""
    last = len(qpos) - 1
    speeds = np.empty((len(qpos), model.nv))
    for i, row in enumerate(speeds):
        before, after = max(i - 1, 0), min(i + 1, last)
        mujoco.mj_differentiatePos(model, row, (after - before) / fps, qpos[before], qpos[after])
    wide = np.pad(speeds, [(1, 1), (0, 0)], mode="edge")
    return 0.25 * wide[:-2] + 0.5 * wide[1:-1] + 0.25 * wide[2:]


def length(library: Library, clip: Array) -> Array:
    """Return how many seconds clips last."""
    return (library.frames[clip] - 1).astype(jnp.float32) / library.fps


def query(library: Library, clip: Array, time: Array, *, captured: bool = False) -> Reference:
    """Return what clips [...] show at times [...] in seconds, kept within each clip's length.

    That is what is followed, or what was once captured.
    """
    shown = library.captured if captured else library.reference
    before, fraction = _place(library, clip, time)
    a = jax.tree.map(lambda x: x[clip, before], shown)
    b = jax.tree.map(lambda x: x[clip, before + 1], shown)
    mixed = jax.tree.map(lambda x, y: x + _widened(fraction, x) * (y - x), a, b)
    columns = np.asarray(library.quaternions)[:, None] + np.arange(4)
    turned = rotations.slerp(
        a.qpos[..., columns], b.qpos[..., columns], _rows(fraction, len(columns))
    )
    rotation = rotations.slerp(a.rotation, b.rotation, _rows(fraction, a.rotation.shape[-2]))
    return mixed._replace(qpos=mixed.qpos.at[..., columns].set(turned), rotation=rotation)


def push(library: Library, clip: Array, time: Array) -> Array:
    """Return how far beyond a clip's pose servos must aim to be there at a time, [..., nu]."""
    before, fraction = _place(library, clip, time)
    a, b = library.push[clip, before], library.push[clip, before + 1]
    return a + _widened(fraction, a) * (b - a)


def _place(library: Library, clip: Array, time: Array) -> tuple[Array, Array]:
    """Return the frame before a time, and which part of the way to the next one is gone."""
    last = library.frames[clip] - 1
    place = jnp.clip(time * library.fps, 0.0, last.astype(jnp.float32))
    before = jnp.minimum(place.astype(jnp.int32), last - 1)
    return before, place - before.astype(jnp.float32)


def _widened(fraction: Array, like: Array) -> Array:
    return fraction.reshape(fraction.shape + (1,) * (like.ndim - fraction.ndim))


def _rows(fraction: Array, count: int) -> Array:
    return jnp.broadcast_to(fraction[..., None], (*fraction.shape, count))


def turned(reference: Reference, angle: Array) -> Reference:
    """Turn references [...] about the world's vertical axis by angles [...]."""
    turn = rotations.about_z(angle)
    bodies = jnp.broadcast_to(
        turn[..., None, :], (*angle.shape, reference.rotation.shape[-2], turn.shape[-1])
    )
    root = [
        rotations.rotate(turn, reference.qpos[..., :3]),
        rotations.multiply(turn, reference.qpos[..., 3:7]),
        reference.qpos[..., 7:],
    ]
    # The root's spin is seen from the root itself, so it stays as it is.
    speed = [rotations.rotate(turn, reference.qvel[..., :3]), reference.qvel[..., 3:]]
    return Reference(
        qpos=jnp.concatenate(root, -1),
        qvel=jnp.concatenate(speed, -1),
        position=rotations.rotate(bodies, reference.position),
        rotation=rotations.multiply(bodies, reference.rotation),
        velocity=rotations.rotate(bodies, reference.velocity),
        spin=rotations.rotate(bodies, reference.spin),
    )


def draw(
    library: Library, key: Key, weights: Array | None = None, *, first: float = 0.0
) -> tuple[Array, Array]:
    """Draw a clip by weights (which need not add up to 1), and a moment evenly.

    The moment lies between `first`, in seconds, and the clip's end.
    """
    clip_key, time_key = jax.random.split(key)
    weights = library.weights if weights is None else weights
    clip = jax.random.categorical(clip_key, jnp.log(weights))
    return clip, first + jax.random.uniform(time_key) * (length(library, clip) - first)
