"""What trials of motion tracking showed, clip by clip."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.motion import metrics
from jaxrl.types import Array, PyTree

# Our name -> the name that users of PHC know, for all clips and for those that succeeded.
_NAMES = {
    "mpjpe": "mpjpe",
    "mpjpe_local": "mpjpel",
    "mpjpe_aligned": "mpjpe_pa",
    "velocity": "vel_dist",
    "acceleration": "accel_dist",
}


class Judgement(NamedTuple):
    """One row per clip."""

    frames: np.ndarray
    success: np.ndarray  # bodies were never 0.5 m off on average
    strict_success: np.ndarray  # no body was ever 0.25 m off
    errors: dict[str, np.ndarray]  # in mm, mm/frame, mm/frame²


def judge(trace: PyTree, lengths: Array) -> Judgement:
    """Judge what was recorded after every step, [steps, clips, ...]; all frames of a clip count."""
    played, meant = (jnp.swapaxes(jnp.asarray(trace[k]), 0, 1) for k in ("played", "meant"))
    frames = jnp.asarray(lengths, jnp.int32)
    chosen = tuple(np.flatnonzero(np.asarray(trace["counts"])[0, 0]).tolist())
    with jax.numpy_rank_promotion("allow"):
        errors = metrics.tracking_errors(played, meant, frames)
    return Judgement(
        frames=np.asarray(frames),
        success=np.asarray(metrics.within_evaluation_limit(played, meant, frames, chosen)),
        strict_success=np.asarray(metrics.within_training_limit(played, meant, frames)),
        errors={name: np.asarray(metrics.per_clip(error)) for name, error in errors.items()},
    )


def summary(found: Judgement) -> dict[str, float]:
    """Return the figures people compare; errors are means over the frames of all clips."""
    values = {
        "eval/success_rate": float(np.mean(found.success)),
        "eval/success_rate_strict": float(np.mean(found.strict_success)),
    }
    for name, label in _NAMES.items():
        error = found.errors[name]
        values[f"eval/{label}_all"] = _pooled(error, found.frames)
        if found.success.any():
            kept = found.success
            values[f"eval/{label}_succ"] = _pooled(error[kept], found.frames[kept])
    return values


def _pooled(error: np.ndarray, frames: np.ndarray) -> float:
    known = np.isfinite(error)
    return float(np.average(error[known], weights=frames[known])) if known.any() else float("nan")
