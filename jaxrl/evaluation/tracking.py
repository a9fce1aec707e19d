"""What trials of motion tracking showed, clip by clip."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.motion import tracking_metrics
from jaxrl.types import Array, PyTree

# Our name -> the name that users of PHC know, for all clips and for those that succeeded.
NAMES = {
    "mpjpe": "mpjpe",
    "mpjpe_local": "mpjpel",
    "mpjpe_aligned": "mpjpe_pa",
    "velocity": "vel_dist",
    "acceleration": "accel_dist",
}
_LOST = {"velocity": 1, "acceleration": 2}  # frames of a clip that have no difference in time


class TrackingResult(NamedTuple):
    """One row per clip."""

    frames: np.ndarray
    success: np.ndarray  # bodies were never 0.5 m off on average
    strict_success: np.ndarray  # no body was ever 0.25 m off
    errors: dict[str, np.ndarray]  # in mm, mm/frame, mm/frame²
    worst: np.ndarray  # mm, the farthest that any body ever was from where it should be


def with_poses(env: Any) -> Callable[[Any], PyTree]:
    """Return what notes, of every state, what a trial is judged by, and the whole pose besides."""

    def record(state: Any) -> PyTree:
        return env.record(state) | {"qpos": env.brax_state(state.packed).pipeline_state.qpos}

    return record


def judge(trace: PyTree, lengths: Array) -> TrackingResult:
    """Judge what was recorded after every step, [steps, clips, ...]; all frames of a clip count."""
    played, meant = (jnp.swapaxes(jnp.asarray(trace[k]), 0, 1) for k in ("played", "meant"))
    frames = jnp.asarray(lengths, jnp.int32)
    chosen = tuple(np.flatnonzero(np.asarray(trace["counts"])[0, 0]).tolist())
    with jax.numpy_rank_promotion("allow"):
        success, strict, errors = jax.device_get(_figures(played, meant, frames, chosen))
    return TrackingResult(
        frames=np.asarray(frames),
        success=success,
        strict_success=strict,
        errors=errors,
        worst=_worst(np.asarray(played), np.asarray(meant), np.asarray(frames)),
    )


@functools.partial(jax.jit, static_argnames="bodies")  # one by one, each would be compiled
def _figures(
    played: Array, meant: Array, frames: Array, bodies: tuple[int, ...]
) -> tuple[Array, Array, dict[str, Array]]:
    errors = tracking_metrics.tracking_errors(played, meant, frames)
    return (
        tracking_metrics.within_evaluation_limit(played, meant, frames, bodies),
        tracking_metrics.within_training_limit(played, meant, frames),
        {name: tracking_metrics.per_clip(error) for name, error in errors.items()},
    )


def _worst(played: np.ndarray, meant: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Return [clips], in mm; of clips [clips, frames, bodies, 3] that are padded."""
    apart = np.max(np.linalg.norm(played - meant, axis=-1), axis=-1, initial=0.0)
    valid = np.arange(apart.shape[1])[None, :] < frames[:, None]
    return tracking_metrics.MILLIMETRES * np.max(np.where(valid, apart, 0.0), axis=1, initial=0.0)


def summary(found: TrackingResult) -> dict[str, float]:
    """Return the figures people compare; errors are means over the frames of all clips.

    A clip whose physics left the numbers has no errors: it counts as failed, and in no mean.
    """
    values = {
        "eval/success_rate": float(np.mean(found.success)),
        "eval/success_rate_strict": float(np.mean(found.strict_success)),
    }
    for name, label in NAMES.items():
        error, count = found.errors[name], found.frames - _LOST.get(name, 0)
        values[f"eval/{label}_all"] = _pooled(error, count)
        if found.success.any():
            kept = found.success
            values[f"eval/{label}_succ"] = _pooled(error[kept], count[kept])
    return values


def _pooled(error: np.ndarray, count: np.ndarray) -> float:
    known = np.isfinite(error)
    return float(np.average(error[known], weights=count[known])) if known.any() else float("nan")
