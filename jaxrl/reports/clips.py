"""The report of a motion tracker: its metrics, a row per clip, and a video of one clip."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.envs.vector_env import VectorEnv
from jaxrl.evaluation import tracking
from jaxrl.evaluation.episodes import Episodes
from jaxrl.rendering import images
from jaxrl.utils import atomic_io

_LABELS = {
    "mpjpe": ("mpjpe", "mm"),
    "mpjpe_local": ("mpjpe, root-relative", "mm"),
    "mpjpe_aligned": ("mpjpe, aligned", "mm"),
    "velocity": ("velocity", "mm/frame"),
    "acceleration": ("acceleration", "mm/frame²"),
}


def has_clips(result: Episodes) -> bool:
    """Return whether episodes were trials of motion tracking."""
    return "played" in result.trace


def rows(result: Episodes, env: VectorEnv) -> list[dict[str, Any]]:
    """Return the metrics of each clip; None for a non-finite number."""
    tracked, library = tracking.judge(result.trace, result.lengths), env.env.library
    return [
        {
            "name": name,
            "frames": int(tracked.frames[i]),
            "seconds": round(float(tracked.frames[i]) / library.fps, 3),
            "planned": name in library.planned,
            "success": bool(tracked.success[i]),
            "strict_success": bool(tracked.strict_success[i]),
            **{label: _number(tracked.errors[key][i]) for key, label in tracking.NAMES.items()},
            "worst_distance": _number(tracked.worst[i]),
        }
        for i, name in enumerate(library.names)
    ]


def _number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def details(clips: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the part of a report about single clips."""
    return {
        "failed_clips": failed(clips),
        "strictly_failed_clips": failed(clips, "strict_success"),
        "clips": clips,
    }


def failed(clips: list[dict[str, Any]], by: str = "success") -> list[str]:
    """Return the names of the failed clips."""
    return [clip["name"] for clip in clips if not clip[by]]


def write_table(path: Path, clips: list[dict[str, Any]]) -> None:
    """Write one line per clip with tabs between columns; in mm and seconds."""
    lines = [list(clips[0]), *([_cell(value) for value in clip.values()] for clip in clips)]
    atomic_io.write_text(path, "".join("\t".join(line) + "\n" for line in lines))


def _cell(value: Any) -> str:
    if value is None:
        return "nan"
    return str(int(value)) if isinstance(value, bool) else str(value)


def format_report(summary: dict[str, Any], clips: list[dict[str, Any]]) -> str:
    """Return the metrics of a report as text."""
    lines = [
        f"{'clips, each played once':<34} {len(clips):>8}",
        f"{'success rate':<34} {summary['success_rate']:>8.1%}  "
        "never 0.5 m off on average, hands and toes apart",
        f"{'strict success rate':<34} {summary['success_rate_strict']:>8.1%}  "
        "no body ever 0.25 m off",
        f"{'mean reward':<34} {summary['mean_reward']:>8.2f}",
        f"{'error':<34} {'all':>8} {'successes':>10}",
    ]
    for key, label in tracking.NAMES.items():
        name, unit = _LABELS[key]
        every, good = (summary.get(f"{label}_{which}") for which in ("all", "succ"))
        succeeded = "-" if good is None else f"{good:.2f}"  # no mean without a success
        lines.append(f"{name + ', ' + unit:<34} {every:>8.2f} {succeeded:>10}")
    for by, text in (("success", "failed"), ("strict_success", "failed strictly")):
        names = failed(clips, by)
        lines.append(f"{text}: {', '.join(names) if names else 'none'}")
    if any(not (clip["success"] or clip["planned"]) for clip in clips):
        lines.append("to plan paths through clips that break physics: python -m jaxrl.clips.plan")
    return "\n".join(lines)


def worst(clips: list[dict[str, Any]]) -> str:
    """Return the name of the clip with the largest distance; a non-finite one is the largest."""
    distances = [clip["worst_distance"] for clip in clips]
    return clips[int(np.argmax([math.inf if d is None else d for d in distances]))]["name"]


def write_video(result: Episodes, env: VectorEnv, clip: str, path: Path) -> None:
    """Write a video of one clip beside its reference."""
    from jaxrl.rendering import software_renderer

    library = env.env.library
    index = library.names.index(clip)
    count = int(result.lengths[index])
    qpos = np.asarray(result.trace["qpos"])[:count, index]
    # States are recorded after each step: the first one is the clip's second frame.
    reference = np.asarray(library.captured.qpos)[index, 1 : count + 1]
    frames = software_renderer.render_poses(env.env.figure.model, qpos, reference)
    images.save(frames, path, library.fps)
