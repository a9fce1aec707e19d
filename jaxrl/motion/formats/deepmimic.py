"""DeepMimic's motion files: JSON, one row of 44 numbers per frame, Y up.

A row is: seconds until the next frame; root position (3) and rotation (4); chest, neck, and for
right and left: hip, knee, ankle, shoulder, elbow; rotations (4, w first) or angles (1).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.errors import UserError
from jaxrl.motion import clip as clips
from jaxrl.motion.clip import Clip
from jaxrl.motion.formats import checks
from jaxrl.motion.skeleton import Skeleton

FPS = 30.0
_LONGEST = 60.0  # seconds of a frame
_NUMBERS = 8 + sum(width for _, width in checks.JOINTS)


def read(file: Path, skeleton: Skeleton, fps: float = FPS) -> Clip:
    """Read a clip at a steady rate, whatever the durations of its frames."""
    content = _content(file)
    rows = _rows(file, content)
    checks.our_humanoid(file, skeleton)
    raw = Clip(file.stem, fps, content.get("Loop") == "wrap", _poses(rows, skeleton))
    clip = clips.validate(raw, skeleton, str(file))
    durations = rows[:-1, 0]
    bad = np.flatnonzero(~((durations > 0) & (durations < _LONGEST)))
    if len(bad):
        raise UserError(
            f"'{file}': frame {bad[0]} lasts {durations[bad[0]]} s; it should be above 0, and less "
            "than a minute."
        )
    times = np.concatenate([[0.0], np.cumsum(durations)])
    qpos = clips.at_steady_rate(skeleton.model, clip.qpos, times, fps)
    return clips.validate(clip._replace(qpos=qpos), skeleton, str(file))


def _content(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise UserError(f"'{file}' is no motion file of DeepMimic's (JSON): {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("Frames"), list):
        raise UserError(f"'{file}': 'Frames' is missing: is it a motion file of DeepMimic's?")
    return content


def _rows(file: Path, content: Mapping[str, Any]) -> np.ndarray:
    """Return the frames [F, 44]."""
    frames = content["Frames"]
    for i, row in enumerate(frames):
        count = len(row) if isinstance(row, list) else 0
        if count != _NUMBERS:
            raise UserError(
                f"'{file}': frame {i} has {count} numbers; the humanoid has {_NUMBERS} "
                "(other characters' clips do not fit)."
            )
    try:
        return np.array(frames, np.float64).reshape(-1, _NUMBERS)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"'{file}': 'Frames' holds something other than numbers.") from error


def _poses(rows: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    qpos = np.tile(skeleton.model.qpos0, (len(rows), 1))
    qpos[:, 0:3] = _upright(rows[:, 1:4])
    qpos[:, 3:7] = _turned(rows[:, 4:8])
    start = 8
    for name, width in checks.JOINTS:
        joint = skeleton.joint(name)
        assert joint is not None
        values = rows[:, start : start + width]
        # Its hinges turn about z, which is -y with Z up.
        qpos[:, joint.columns] = _turned(values) if width == 4 else -joint.axis[1] * values
        start += width
    return qpos


def _upright(v: np.ndarray) -> np.ndarray:
    """Take vectors from Y up to Z up."""
    return np.stack([v[..., 0], -v[..., 2], v[..., 1]], -1)


def _turned(q: np.ndarray) -> np.ndarray:
    """Take rotations from axes with Y up to axes with Z up: only their axes change."""
    return np.concatenate([q[..., :1], _upright(q[..., 1:])], -1)
