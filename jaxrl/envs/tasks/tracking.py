"""Results of motion tracking trials, clip by clip.

Trials record after every step, for each clip:

    position         [bodies, 3], of the simulated humanoid
    captured         [bodies, 3], of the captured motion: what errors are measured from
    success_bodies   bool [bodies], those that decide on success
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import TrainConfig
from jaxrl.envs.hooks import TrialCondition, TrialEpisodes, TrialReport
from jaxrl.motion import formats, tracking_metrics
from jaxrl.motion.library import Library
from jaxrl.types import Array, PyTree

# Our name -> the name that users of PHC know, for all clips and for those that succeeded.
NAMES = {
    "mpjpe": "mpjpe",
    "mpjpe_local": "mpjpel",
    "mpjpe_aligned": "mpjpe_pa",
    "velocity": "vel_dist",
    "acceleration": "accel_dist",
}
_LABELS = {
    "mpjpe": ("mpjpe", "mm"),
    "mpjpe_local": ("mpjpe, root-relative", "mm"),
    "mpjpe_aligned": ("mpjpe, aligned", "mm"),
    "velocity": ("velocity", "mm/frame"),
    "acceleration": ("acceleration", "mm/frame²"),
}
# What is compared between conditions, and the metric of each.
CRITERIA = {"success": "eval/success_rate", "strict_success": "eval/success_rate_strict"}
_LOST_FRAMES = {"velocity": 1, "acceleration": 2}  # frames without a difference in time


class TrackingResult(NamedTuple):
    """One row per clip."""

    frames: np.ndarray
    success: np.ndarray  # the mean distance of bodies never exceeded 0.5 m
    strict_success: np.ndarray  # no body was ever 0.25 m off
    errors: dict[str, np.ndarray]  # in mm, mm/frame, mm/frame²
    max_distance: np.ndarray  # mm, the largest distance of any body in any frame


def evaluate(trace: PyTree, lengths: Array, chunk: int | None = None) -> TrackingResult:
    """Return errors and successes of recorded trials, [steps, clips, ...].

    With `chunk`, that number of clips at a time: errors need several times the memory of the trace.
    """
    if chunk and len(lengths) > chunk:
        columns = [slice(i, i + chunk) for i in range(0, len(lengths), chunk)]
        parts = [evaluate(jax.tree.map(lambda x: x[:, c], trace), lengths[c]) for c in columns]  # noqa: B023
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)
    position, captured = (
        jnp.swapaxes(jnp.asarray(trace[k]), 0, 1) for k in ("position", "captured")
    )
    frames = jnp.asarray(lengths, jnp.int32)
    bodies = tuple(np.flatnonzero(np.asarray(trace["success_bodies"])[0, 0]).tolist())
    with jax.numpy_rank_promotion("allow"):
        success, strict, errors = jax.device_get(_compute(position, captured, frames, bodies))
    return TrackingResult(
        frames=np.asarray(frames),
        success=success,
        strict_success=strict,
        errors=errors,
        max_distance=_max_distance(*(np.asarray(x) for x in (position, captured, frames))),
    )


@functools.partial(jax.jit, static_argnames="bodies")  # op by op, each would be compiled
def _compute(
    position: Array, captured: Array, frames: Array, bodies: tuple[int, ...]
) -> tuple[Array, Array, dict[str, Array]]:
    errors = tracking_metrics.tracking_errors(position, captured, frames)
    return (
        tracking_metrics.within_evaluation_limit(position, captured, frames, bodies),
        tracking_metrics.within_training_limit(position, captured, frames),
        {name: tracking_metrics.per_clip(error) for name, error in errors.items()},
    )


def _max_distance(position: np.ndarray, captured: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Return [clips] in mm, of padded clips [clips, frames, bodies, 3]."""
    distance = np.max(np.linalg.norm(position - captured, axis=-1), axis=-1, initial=0.0)
    valid = np.arange(distance.shape[1])[None, :] < frames[:, None]
    greatest = np.max(np.where(valid, distance, 0.0), axis=1, initial=0.0)
    return tracking_metrics.MILLIMETRES * greatest


def metrics(result: TrackingResult) -> dict[str, float]:
    """Return the metrics of an evaluation; errors are means over the frames of all clips.

    A clip that became non-finite has no errors: it counts as failed, and in no mean.
    """
    values = {
        "eval/success_rate": float(np.mean(result.success)),
        "eval/success_rate_strict": float(np.mean(result.strict_success)),
    }
    for name, label in NAMES.items():
        error, count = result.errors[name], result.frames - _LOST_FRAMES.get(name, 0)
        values[f"eval/{label}_all"] = _weighted_mean(error, count)
        if result.success.any():
            chosen = result.success
            values[f"eval/{label}_succ"] = _weighted_mean(error[chosen], count[chosen])
    return values


def _weighted_mean(error: np.ndarray, count: np.ndarray) -> float:
    finite = np.isfinite(error)
    if not finite.any():
        return float("nan")
    return float(np.average(error[finite], weights=count[finite]))


def report(episodes: TrialEpisodes, library: Library, chunk: int | None = None) -> TrialReport:
    """Return the results of trials of all clips; see `evaluate` for `chunk`."""
    result = evaluate(episodes.trace, episodes.lengths, chunk)
    values, clips = metrics(result), table(result, library)
    details = {
        "failed_clips": failed(clips),
        "strictly_failed_clips": failed(clips, "strict_success"),
        "clips": clips,
    }
    mean_reward = float(np.mean(np.asarray(episodes.returns, np.float64)))
    text = _text(values | {"eval/mean_reward": mean_reward}, clips)
    return TrialReport(values, clips, details, text, worst(clips))


def table(result: TrackingResult, library: Library) -> list[dict[str, Any]]:
    """Return the results of each clip; None for values that are not finite."""
    planned = set(library.planned)
    return [
        {
            "name": name,
            "frames": int(result.frames[i]),
            "seconds": round(float(result.frames[i]) / library.fps, 3),
            "planned": name in planned,
            "success": bool(result.success[i]),
            "strict_success": bool(result.strict_success[i]),
            **{label: _finite(result.errors[key][i]) for key, label in NAMES.items()},
            "worst_distance": _finite(result.max_distance[i]),
        }
        for i, name in enumerate(library.names)
    ]


def _finite(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def failed(clips: list[dict[str, Any]], criterion: str = "success") -> list[str]:
    """Return the names of the clips that failed by a criterion."""
    return [clip["name"] for clip in clips if not clip[criterion]]


def worst(clips: list[dict[str, Any]]) -> str:
    """Return the name of the clip with the largest distance; non-finite counts as infinite."""
    distances = [clip["worst_distance"] for clip in clips]
    return clips[int(np.argmax([math.inf if d is None else d for d in distances]))]["name"]


def _text(values: dict[str, float], clips: list[dict[str, Any]]) -> str:
    lines = [
        f"{'clips, each played whole':<34} {len(clips):>8}",
        f"{'success rate':<34} {values['eval/success_rate']:>8.1%}  "
        "never 0.5 m off on average, without hands and toes",
        f"{'strict success rate':<34} {values['eval/success_rate_strict']:>8.1%}  "
        "no body ever 0.25 m off",
        f"{'mean reward':<34} {values['eval/mean_reward']:>8.2f}",
        f"{'error':<34} {'all':>8} {'successes':>10}",
    ]
    for key, label in NAMES.items():
        name, unit = _LABELS[key]
        all_clips, succeeded = (values.get(f"eval/{label}_{which}") for which in ("all", "succ"))
        # Without a success there is no such mean.
        cell = "-" if succeeded is None else f"{succeeded:.2f}"
        lines.append(f"{name + ', ' + unit:<34} {all_clips:>8.2f} {cell:>10}")
    for criterion, label in (("success", "failed"), ("strict_success", "failed strictly")):
        names = failed(clips, criterion)
        lines.append(f"{label}: {', '.join(names) if names else 'none'}")
    if any(not (clip["success"] or clip["planned"]) for clip in clips):
        lines.append("to plan feasible versions of clips: python -m jaxrl.clips.plan")
    return "\n".join(lines)


def conditions(config: TrainConfig) -> list[TrialCondition]:
    """Return the conditions under which clips are played: with and without plans, and pushed."""
    motion = config.motion
    planned = bool(motion.plans and motion.clips and formats.any_planned(motion.clips))
    every = [TrialCondition("", "with plans" if planned else "without plans", config)]
    if planned:
        without = dataclasses.replace(motion, plans=False)
        changed = dataclasses.replace(config, motion=without)
        every.append(TrialCondition("without_plans", "the same clips without plans", changed))
    if motion.push:
        pushed = dataclasses.replace(motion, push_trials=True)
        title = f"pushed by {motion.push:g} m/s every {motion.push_every:g} s"
        changed = dataclasses.replace(config, motion=pushed)
        every.append(TrialCondition("pushed", title, changed))
    return every
