"""Motion clips as arrays of the device, looked up at any time inside compiled programs."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from flax import struct

from jaxrl.errors import UserError
from jaxrl.motion import formats, ground, rotations, skeleton
from jaxrl.motion.clip import Clip, cycles, limited, resample
from jaxrl.types import Array, Key


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

    reference: Reference  # [clips, frames, ...]
    frames: Array  # int32 [clips]
    weights: Array  # float32 [clips], how likely each is drawn; they add up to 1
    names: tuple[str, ...] = struct.field(pytree_node=False)
    fps: float = struct.field(pytree_node=False)
    quaternions: tuple[int, ...] = struct.field(pytree_node=False)  # where they begin in qpos


def load(path: str, model: mujoco.MjModel, fps: float = 30.0, at_least: float = 0.0) -> Library:
    """Read the clips of a file or folder, fit them to the model, and build a library of them.

    Clips that loop are repeated until they last at least so many seconds.
    """
    bones = skeleton.describe(model)
    read = [limited(clip, bones) for clip in formats.read(path, bones)]
    return build([_repeated(ground.grounded(c, model), model, at_least) for c in read], model, fps)


def _repeated(clip: Clip, model: mujoco.MjModel, at_least: float) -> Clip:
    count = math.ceil(at_least / clip.seconds)
    return cycles(clip, count, model) if clip.loops and count > 1 else clip


def build(clips: Sequence[Clip], model: mujoco.MjModel, fps: float = 30.0) -> Library:
    """Compute all that the clips show, at one rate."""
    if not clips:
        raise UserError("A motion library needs at least one clip.")
    shown = [_shown(resample(clip, fps, model).qpos, fps, model) for clip in clips]
    frames = [len(one.qpos) for one in shown]
    longest = max(frames)
    padded = [jax.tree.map(lambda x: _padded(x, longest), one) for one in shown]
    return Library(
        reference=jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *padded),
        frames=jnp.asarray(frames, jnp.int32),
        weights=jnp.full((len(frames),), 1.0 / len(frames), jnp.float32),
        names=tuple(clip.name for clip in clips),
        fps=float(fps),
        quaternions=skeleton.describe(model).quaternions,
    )


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    rest = [(0, count - len(values))] + [(0, 0)] * (values.ndim - 1)
    return np.pad(values, rest, mode="edge")


def _shown(qpos: np.ndarray, fps: float, model: mujoco.MjModel) -> Reference:
    """Return what poses [F, nq] show, as host arrays; MuJoCo moves the bodies."""
    qvel = _speeds(qpos, fps, model)
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


def query(library: Library, clip: Array, time: Array) -> Reference:
    """Return what clips [...] show at times [...] in seconds, kept within each clip's length."""
    last = library.frames[clip] - 1
    place = jnp.clip(time * library.fps, 0.0, last.astype(jnp.float32))
    before = jnp.minimum(place.astype(jnp.int32), last - 1)
    fraction = place - before.astype(jnp.float32)
    a = jax.tree.map(lambda x: x[clip, before], library.reference)
    b = jax.tree.map(lambda x: x[clip, before + 1], library.reference)
    mixed = jax.tree.map(lambda x, y: x + _widened(fraction, x) * (y - x), a, b)
    columns = np.asarray(library.quaternions)[:, None] + np.arange(4)
    turned = rotations.slerp(
        a.qpos[..., columns], b.qpos[..., columns], _rows(fraction, len(columns))
    )
    rotation = rotations.slerp(a.rotation, b.rotation, _rows(fraction, a.rotation.shape[-2]))
    return mixed._replace(qpos=mixed.qpos.at[..., columns].set(turned), rotation=rotation)


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


def draw(library: Library, key: Key, weights: Array | None = None) -> tuple[Array, Array]:
    """Draw a clip by weights (which need not add up to 1), and a moment of it evenly."""
    clip_key, time_key = jax.random.split(key)
    weights = library.weights if weights is None else weights
    clip = jax.random.categorical(clip_key, jnp.log(weights))
    return clip, jax.random.uniform(time_key) * length(library, clip)
