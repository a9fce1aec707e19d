"""Cameras that follow what moves: from points in the world to places in a picture."""

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
_STAYS = 2.5  # what wanders over no more than this many times its own size is seen all at once
_AROUND = 5.0  # fixed things are seen too unless they are this much larger than what moves
_TIGHT = 0.43  # the radius of what is looked at, in diagonals of the box around it
_FAR = 4.0  # how far away other things are seen from, in radii
_FLAT, _OVER, _BESIDE = 0.15, np.radians(50.0), np.radians(16.0)  # flat things are seen from above


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
    axes = _axes(heading, _ABOVE)
    aim = _smooth(root)
    aim[:, 2] = _AIM * tall + _RISE * (aim[:, 2] - _AIM * tall)
    eyes = aim + 0.5 * aside * axes[0] - _DISTANCE * tall * axes[2]
    room = np.array([_ROOM[1] * tall + aside, _ROOM[0] * tall])
    focal = _DISTANCE * tall * float((np.array(size) / room).min())
    return [Camera(eye, axes, focal, size) for eye in eyes]


class View(NamedTuple):
    """What is to be looked at in F moments, all of it within a radius, and from how high up."""

    aim: np.ndarray  # [F, 3]
    radius: float
    above: float  # in radians


def view(low: np.ndarray, high: np.ndarray, fixed: np.ndarray | None = None) -> View:
    """Return how to look at what moves within boxes [F, 3] each, and at fixed corners [2, 3]."""
    whole = np.stack([low.min(0), high.max(0)])
    own = float(np.linalg.norm(high - low, axis=-1).max())
    follows = np.linalg.norm((whole[1] - whole[0])[:2]) > _STAYS * own
    if follows:
        size, aim = (high - low).max(0), _smooth(0.5 * (low + high))
        return View(aim, _TIGHT * own, _over(size))
    if fixed is not None:
        both = np.stack([np.minimum(whole[0], fixed[0]), np.maximum(whole[1], fixed[1])])
        if np.linalg.norm(both[1] - both[0]) < _AROUND * np.linalg.norm(whole[1] - whole[0]):
            whole = both
    size = whole[1] - whole[0]
    aim = np.tile(whole.mean(0), (len(low), 1))
    return View(aim, _TIGHT * float(np.linalg.norm(size)), _over(size))


def looking(seen: View, size: tuple[int, int]) -> list[Camera]:
    """Return a camera for each moment of a view."""
    axes, away = _axes(0.0, seen.above), _FAR * seen.radius
    focal = 0.5 * min(size) * np.sqrt(_FAR**2 - 1.0)  # a ball of that radius just fits
    return [Camera(aim - away * axes[2], axes, focal, size) for aim in seen.aim]


def away(above: float) -> np.ndarray:
    """Return the direction [3] from what is looked at to a camera so far above."""
    return -_axes(0.0, above)[2]


def _over(size: np.ndarray) -> float:
    return _OVER if size[2] < _FLAT * max(size[:2]) else _BESIDE


def _smooth(way: np.ndarray) -> np.ndarray:
    steady = np.linspace(way[0], way[-1], len(way))  # so that it lags at neither end
    return steady + ndimage.gaussian_filter1d(way - steady, _STEADY, axis=0, mode="nearest")


def _axes(heading: float, above: float) -> np.ndarray:
    away = heading - np.pi / 2.0 + _FRONT  # the direction from the figure to the camera
    level = -np.array([np.cos(away), np.sin(away), 0.0])
    into = np.cos(above) * level - np.sin(above) * np.array([0.0, 0.0, 1.0])
    right = np.cross(level, [0.0, 0.0, 1.0])
    return np.stack([right, np.cross(right, into), into])
