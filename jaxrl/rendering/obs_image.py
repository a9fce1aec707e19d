"""Images of observations, for environments with neither a model nor a `draw` method."""

import jax
import numpy as np
from PIL import Image, ImageDraw

from jaxrl.types import PyTree

_SIZE = 320  # pixels
_BACKGROUND, _AXIS, _POSITIVE, _NEGATIVE = "#f4f6f8", "#8a939c", "#3d6ea5", "#b5543b"


def draw_observations(obs: PyTree) -> list[np.ndarray]:
    """Return one image for each of F observations [F, ...]: pixels enlarged, numbers as bars."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(obs)]
    if len(leaves) == 1 and leaves[0].dtype == np.uint8 and leaves[0].ndim == 4:
        return [_enlarge(frame) for frame in leaves[0]]
    numbers = np.concatenate([leaf.reshape(len(leaf), -1).astype(float) for leaf in leaves], 1)
    numbers = np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
    largest = max(float(np.abs(numbers).max()), 1e-6)
    return [_bars(row / largest) for row in numbers]


def _enlarge(pixels: np.ndarray) -> np.ndarray:
    """Return pixels [height, width, channels] as a larger image in colour."""
    pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    if pixels.shape[2] != 3:  # a stack of frames, say
        pixels = np.repeat(pixels[..., -1:], 3, axis=2)
    times = max(1, _SIZE // max(pixels.shape[:2]))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)


def _bars(values: np.ndarray) -> np.ndarray:
    """Draw numbers from -1 to 1 side by side."""
    image = Image.new("RGB", (_SIZE, _SIZE), _BACKGROUND)
    pen, axis, width = ImageDraw.Draw(image), _SIZE / 2, _SIZE / len(values)
    for i, value in enumerate(values):
        top, bottom = sorted((axis, axis - 0.45 * _SIZE * value))
        left, right = (i + 0.1) * width, max((i + 0.9) * width - 1, (i + 0.1) * width)
        pen.rectangle([left, top, right, bottom], fill=_POSITIVE if value > 0 else _NEGATIVE)
    pen.line([(0, axis), (_SIZE, axis)], fill=_AXIS)
    return np.asarray(image)
