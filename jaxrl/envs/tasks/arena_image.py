"""The arena as an image."""

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import ImageDraw

    from jaxrl.envs.tasks.arena import ArenaState

CELL = 28  # pixels
_FLOOR, _LINE, _WALL = "#f4f1ea", "#e3ddd0", "#6b6459"
_MINE, _SPENT, _ALTAR, _ORE, _ICE = "#c8862a", "#d9cdb8", "#7b4fa3", "#ffd24a", "#9bd3ee"
_AGENTS = ("#1f77b4", "#d62728", "#2ca02c", "#e377c2", "#17becf", "#8c564b")


def draw(arena: "ArenaState", size: int) -> np.ndarray:
    """Draw one arena of size × size cells: [height, width, 3] of uint8."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (size * CELL + 1, size * CELL + 1), _FLOOR)
    pen = ImageDraw.Draw(image)
    for i in range(size + 1):
        pen.line([(0, i * CELL), (size * CELL, i * CELL)], fill=_LINE)
        pen.line([(i * CELL, 0), (i * CELL, size * CELL)], fill=_LINE)
    for place in np.asarray(arena.walls):
        pen.rectangle(_box(place, 1), fill=_WALL)
    for place, wait in zip(np.asarray(arena.mines), np.asarray(arena.refill), strict=True):
        pen.polygon(_corners(place, 6, 0.42), fill=_SPENT if wait else _MINE)
    for place in np.asarray(arena.altars):
        pen.rectangle(_box(place, 4), fill=_ALTAR)
        pen.polygon(_corners(place, 4, 0.2), fill=_ORE)
    for number in range(len(np.asarray(arena.place))):
        _agent(pen, arena, number)
    return np.asarray(image)


def _box(place: np.ndarray, margin: int) -> list[tuple[float, float]]:
    y, x = place * CELL
    return [(x + margin, y + margin), (x + CELL - margin, y + CELL - margin)]


def _corners(place: np.ndarray, number: int, radius: float) -> list[tuple[float, float]]:
    y, x = (place + 0.5) * CELL
    angles = [2 * math.pi * i / number for i in range(number)]
    return [(x + radius * CELL * math.sin(t), y - radius * CELL * math.cos(t)) for t in angles]


def _agent(pen: "ImageDraw.ImageDraw", arena: "ArenaState", number: int) -> None:
    """Draw a disc with a nose in its heading, and a dot for each ore that it carries."""
    place, heading = np.asarray(arena.place[number]), int(arena.heading[number])
    y, x = (place + 0.5) * CELL
    color = _AGENTS[number % len(_AGENTS)]
    if arena.frozen[number]:
        pen.rectangle(_box(place, 1), fill=_ICE)
    pen.ellipse(_box(place, 4), fill=color)
    across, down = ((0, -1), (1, 0), (0, 1), (-1, 0))[heading]
    tip = (x + 0.48 * CELL * across, y + 0.48 * CELL * down)
    sides = [
        (
            x + CELL * (0.25 * across + side * 0.22 * down),
            y + CELL * (0.25 * down + side * 0.22 * across),
        )
        for side in (-1, 1)
    ]
    pen.polygon([tip, *sides], fill=color)
    for i in range(int(arena.ore[number])):
        left = x + (i - 1) * 0.22 * CELL
        pen.ellipse([(left - 3, y - 3), (left + 3, y + 3)], fill=_ORE, outline="#000000")
