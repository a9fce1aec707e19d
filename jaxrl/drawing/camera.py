"""A camera that follows a figure from its side: from points in the world to places in a picture."""

from typing import NamedTuple

import numpy as np
from scipy import ndimage

_DISTANCE = 3.0  # all lengths here are in heights of the figure
_ROOM = (1.4, 0.95)  # what is in sight at the figure's distance: upwards, sideways
_AIM = 0.52  # how high the camera looks
_RISE = 0.5  # which part of the root's ups and downs the camera joins in
_FRONT = np.radians(25.0)  # how far in front of the figure's right side the camera is
_ABOVE = np.radians(8.0)  # how far it looks down
_STEADY = 8.0  # frames over which its way is smoothed


class Camera(NamedTuple):
    """Where a camera is and what it sees."""

    eye: np.ndarray  # [3]
    axes: np.ndarray  # [3, 3]: to the right of the picture, up, and into it
    focal: float  # pixels that a metre takes at a depth of one metre
    size: tuple[int, int]  # width and height in pixels

    def seen(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where points [..., 3] are in the picture (x, y from its top left) and how deep."""
        along = (points - self.eye) @ self.axes.T
        depth = along[..., 2]
        scale = self.focal / depth[..., None]
        middle = np.array(self.size) / 2.0
        return middle + along[..., :2] * scale * np.array([1.0, -1.0]), depth

    @property
    def horizon(self) -> float:
        """How far below the picture's top level ground ends."""
        up, into = self.axes[1], self.axes[2]
        far = np.array([into[0], into[1], 0.0])
        return self.size[1] / 2.0 - self.focal * float(far @ up) / float(far @ into)


def following(
    root: np.ndarray, heading: float, tall: float, size: tuple[int, int], aside: float = 0.0
) -> list[Camera]:
    """Return a camera for each place of the root [F, 3] of a figure so tall, heading so at first.

    It looks past the figure by half of `aside`, to what is shown that far to its right.
    """
    axes = _axes(heading)
    steady = np.linspace(root[0], root[-1], len(root))  # so that it lags at neither end
    aim = steady + ndimage.gaussian_filter1d(root - steady, _STEADY, axis=0, mode="nearest")
    aim[:, 2] = _AIM * tall + _RISE * (aim[:, 2] - _AIM * tall)
    eyes = aim + 0.5 * aside * axes[0] - _DISTANCE * tall * axes[2]
    room = np.array([_ROOM[1] * tall + aside, _ROOM[0] * tall])
    focal = _DISTANCE * tall * float((np.array(size) / room).min())
    return [Camera(eye, axes, focal, size) for eye in eyes]


def _axes(heading: float) -> np.ndarray:
    away = heading - np.pi / 2.0 + _FRONT  # the direction from the figure to the camera
    level = -np.array([np.cos(away), np.sin(away), 0.0])
    into = np.cos(_ABOVE) * level - np.sin(_ABOVE) * np.array([0.0, 0.0, 1.0])
    right = np.cross(level, [0.0, 0.0, 1.0])
    return np.stack([right, np.cross(right, into), into])
