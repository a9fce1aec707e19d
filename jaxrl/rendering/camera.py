"""Pinhole cameras that follow what moves: they project points of the world to pixels."""

from typing import NamedTuple

import numpy as np
from scipy import ndimage

# Of a figure, in heights of it.
_DISTANCE = 3.0
_VISIBLE = (1.4, 0.95)  # extent in sight at the figure's distance: vertical, horizontal
_AIM = 0.52  # height of the point that the camera looks at
_RISE = 0.5  # fraction of the root's vertical motion that the camera follows
_AZIMUTH = np.radians(25.0)  # in front of the figure's right side
_ELEVATION = np.radians(8.0)
_SMOOTHING = 8.0  # frames over which the camera's path is smoothed
# Of other models.
_STATIC = 2.5  # a camera stays fixed if motion spans at most this many sizes of what moves
_SURROUNDINGS = 5.0  # fixed geoms are in view unless they are this much larger than what moves
_TIGHT = 0.48  # radius of the view, in diagonals of the bounding box
_FAR = 4.0  # distance of the camera, in radii
_FLAT, _FROM_ABOVE, _FROM_SIDE = 0.15, np.radians(50.0), np.radians(16.0)


class Camera(NamedTuple):
    """A pinhole camera."""

    eye: np.ndarray  # [3]
    axes: np.ndarray  # [3, 3]: right, up and forward
    focal: float  # pixels per metre at a depth of one metre
    size: tuple[int, int]  # width and height in pixels

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pixels [..., 2] (x, y from the top left) and depths [...] of points [..., 3]."""
        along = (points - self.eye) @ self.axes.T
        depth = along[..., 2]
        scale = self.focal / depth[..., None]
        center = np.array(self.size) / 2.0
        return center + along[..., :2] * scale * np.array([1.0, -1.0]), depth

    @property
    def horizon(self) -> float:
        """Row of the horizon, in pixels from the top."""
        up, into = self.axes[1], self.axes[2]
        far = np.array([into[0], into[1], 0.0])
        return self.size[1] / 2.0 - self.focal * float(far @ up) / float(far @ into)


def tracking_cameras(
    root: np.ndarray, heading: float, height: float, size: tuple[int, int], offset: float = 0.0
) -> list[Camera]:
    """Return one camera per frame that follows a figure from its right side.

    Args:
      root: [F, 3] positions of the figure's root.
      heading: first yaw of the figure, in radians.
      height: height of the figure at rest.
      size: width and height in pixels.
      offset: distance to a second figure on the right, which is in view too.
    """
    axes = _axes(heading, _ELEVATION)
    aim = _smooth(root)
    aim[:, 2] = _AIM * height + _RISE * (aim[:, 2] - _AIM * height)
    eyes = aim + 0.5 * offset * axes[0] - _DISTANCE * height * axes[2]
    visible = np.array([_VISIBLE[1] * height + offset, _VISIBLE[0] * height])
    focal = _DISTANCE * height * float((np.array(size) / visible).min())
    return [Camera(eye, axes, focal, size) for eye in eyes]


class View(NamedTuple):
    """The sphere that a camera shows in each of F frames, and the camera's elevation."""

    aim: np.ndarray  # [F, 3]
    radius: float
    elevation: float  # in radians


def make_view(low: np.ndarray, high: np.ndarray, fixed: np.ndarray | None = None) -> View:
    """Return the view of what moves: following it, or of all of it if it stays in place.

    Args:
      low: [F, 3] lowest corners of the bounding boxes of what moves.
      high: [F, 3] highest corners.
      fixed: [2, 3] corners of what does not move.
    """
    bounds = np.stack([low.min(0), high.max(0)])
    diagonal = float(np.linalg.norm(high - low, axis=-1).max())
    if np.linalg.norm((bounds[1] - bounds[0])[:2]) > _STATIC * diagonal:
        size, aim = (high - low).max(0), _smooth(0.5 * (low + high))
        return View(aim, _TIGHT * diagonal, _elevation(size))
    if fixed is not None:
        merged = np.stack([np.minimum(bounds[0], fixed[0]), np.maximum(bounds[1], fixed[1])])
        extents = [np.linalg.norm(box[1] - box[0]) for box in (merged, bounds)]
        if extents[0] < _SURROUNDINGS * extents[1]:
            bounds = merged
    size = bounds[1] - bounds[0]
    aim = np.tile(bounds.mean(0), (len(low), 1))
    return View(aim, _TIGHT * float(np.linalg.norm(size)), _elevation(size))


def fixed_cameras(view: View, size: tuple[int, int]) -> list[Camera]:
    """Return one camera per frame of a view, all with the same direction."""
    axes, distance = _axes(0.0, view.elevation), _FAR * view.radius
    focal = 0.5 * min(size) * np.sqrt(_FAR**2 - 1.0)  # a ball of that radius just fits
    return [Camera(aim - distance * axes[2], axes, focal, size) for aim in view.aim]


def camera_direction(elevation: float) -> np.ndarray:
    """Return the direction [3] from the aim to a camera of this elevation."""
    return -_axes(0.0, elevation)[2]


def _elevation(size: np.ndarray) -> float:
    return _FROM_ABOVE if size[2] < _FLAT * max(size[:2]) else _FROM_SIDE


def _smooth(path: np.ndarray) -> np.ndarray:
    line = np.linspace(path[0], path[-1], len(path))  # so that it lags at neither end
    return line + ndimage.gaussian_filter1d(path - line, _SMOOTHING, axis=0, mode="nearest")


def _axes(heading: float, elevation: float) -> np.ndarray:
    away = heading - np.pi / 2.0 + _AZIMUTH  # the direction from the figure to the camera
    level = -np.array([np.cos(away), np.sin(away), 0.0])
    into = np.cos(elevation) * level - np.sin(elevation) * np.array([0.0, 0.0, 1.0])
    right = np.cross(level, [0.0, 0.0, 1.0])
    return np.stack([right, np.cross(right, into), into])
