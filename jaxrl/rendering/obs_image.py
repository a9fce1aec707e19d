"""Pictures of what an agent sees, for worlds with neither a model nor a picture of their own."""

from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

_SIZE = 320  # pixels
_PAPER, _AXIS, _MORE, _LESS = "#f4f6f8", "#8a939c", "#3d6ea5", "#b5543b"


def pictures(seen: Any) -> list[np.ndarray]:
    """Return a picture of each of F observations, [F, ...]: of pixels as they are, else bars."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(seen)]
    if len(leaves) == 1 and leaves[0].dtype == np.uint8 and leaves[0].ndim == 4:
        return [_enlarged(frame) for frame in leaves[0]]
    numbers = np.concatenate([leaf.reshape(len(leaf), -1).astype(float) for leaf in leaves], 1)
    numbers = np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
    largest = max(float(np.abs(numbers).max()), 1e-6)
    return [_bars(row / largest) for row in numbers]


def _enlarged(pixels: np.ndarray) -> np.ndarray:
    """Return [height, width, channels] as a larger picture in colour."""
    pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    if pixels.shape[2] != 3:  # several pictures behind each other, say
        pixels = np.repeat(pixels[..., -1:], 3, axis=2)
    times = max(1, _SIZE // max(pixels.shape[:2]))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)


def _bars(values: np.ndarray) -> np.ndarray:
    """Draw numbers from -1 to 1 side by side."""
    picture = Image.new("RGB", (_SIZE, _SIZE), _PAPER)
    pen, middle, wide = ImageDraw.Draw(picture), _SIZE / 2, _SIZE / len(values)
    for i, value in enumerate(values):
        top, bottom = sorted((middle, middle - 0.45 * _SIZE * value))
        left, right = (i + 0.1) * wide, max((i + 0.9) * wide - 1, (i + 0.1) * wide)
        pen.rectangle([left, top, right, bottom], fill=_MORE if value > 0 else _LESS)
    pen.line([(0, middle), (_SIZE, middle)], fill=_AXIS)
    return np.asarray(picture)
