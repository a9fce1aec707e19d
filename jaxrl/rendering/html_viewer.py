"""One HTML file that shows episodes: everything it needs is inside, nothing is ever fetched.

A model is shown in 3-D by three.js (MIT licence, beside this file; `tools/three` bundles it).
"""

import base64
import html
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.rendering import geoms, primitives, scene
from jaxrl.rendering.camera import View, away
from jaxrl.rendering.geoms import Bodies, Part

_WEB = Path(__file__).parent / "web"
_STEPS = 32767  # whole numbers of 16 bits end here
# MuJoCo's numbers of what can be drawn, as viewer.js names them.
_KINDS = {2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh"}


class Episode(NamedTuple):
    """What is told of an episode; frames are `stride` steps and `pause` seconds apart."""

    title: str
    success: bool | None
    steps: int
    returns: np.ndarray  # [F], what was earned up to each frame
    stride: int = 1
    pause: float = 0.1
    clock: bool = True  # whether seconds mean anything


def of_model(
    title: str,
    model: Any,
    episodes: Sequence[tuple[Episode, Bodies, Bodies | None]],
) -> str:
    """Return a page of a model's poses, each with those of a ghost or without."""
    seen, body = geoms.of(model), primitives.prepare(model)
    looks = [scene.look(body, where) for _, where, _ in episodes]
    moving = sorted({part.body for part in seen if part.moves})
    radius = max(view.radius for view, _ in looks)
    film = {
        "parts": [_part(part, moving) for part in seen],
        "meshes": _meshes(model),
        "bodies": len(moving),
        "radius": radius,
        "floor": min(floor for _, floor in looks),
        "cell": 10.0 ** math.floor(math.log10(radius)) / (1 if radius < 3 else 5),
        "away": away(max(view.above for view, _ in looks)).tolist(),
        "episodes": [
            _told(episode) | _poses(where, ghost, view, moving)
            for (episode, where, ghost), (view, _) in zip(episodes, looks, strict=True)
        ],
    }
    return _page(title, film)


def of_pictures(title: str, episodes: Sequence[tuple[Episode, Sequence[np.ndarray]]]) -> str:
    """Return a page of pictures, uint8 [height, width, 3]."""
    told = [_told(one) | {"pictures": [_png(p) for p in shown]} for one, shown in episodes]
    return _page(title, {"episodes": told})


def _page(title: str, film: dict[str, Any]) -> str:
    text = (_WEB / "page.html").read_text(encoding="utf-8")
    # No text of ours may end a script early, wherever it came from.
    told = json.dumps(film, allow_nan=False).replace("<", "\\u003c")
    filling = {
        "title": html.escape(title),
        "film": told,
        "viewer": (_WEB / "viewer.js").read_text(encoding="utf-8"),
        "three": (_WEB / "three.min.js").read_text(encoding="utf-8") if "parts" in film else "",
    }
    return re.sub(r"\$(\w+)", lambda found: filling[found[1]], text)


def _told(episode: Episode) -> dict[str, Any]:
    told = episode._asdict() | {"frames": len(episode.returns)}
    return told | {"returns": _text(episode.returns.astype("<f4"))}


def _part(part: Part, moving: list[int]) -> dict[str, Any]:
    return {
        "kind": _KINDS[part.kind],
        "size": part.size.round(5).tolist(),
        "colour": part.colour.round(3).tolist(),
        "place": part.place.round(5).tolist(),
        "turn": part.turn.round(6).tolist(),
        "mesh": part.mesh,
        "body": moving.index(part.body) if part.moves else -1,
    }


def _meshes(model: Any) -> list[dict[str, str]]:
    found = []
    for i in range(model.nmesh):
        points, faces = model.mesh_vertadr[i], model.mesh_faceadr[i]
        corners = model.mesh_vert[points : points + model.mesh_vertnum[i]]
        sides = model.mesh_face[faces : faces + model.mesh_facenum[i]]
        found.append({"points": _text(corners.astype("<f4")), "faces": _text(sides.astype("<u4"))})
    return found


def _poses(where: Bodies, ghost: Bodies | None, view: View, moving: list[int]) -> dict[str, Any]:
    """Return poses as whole numbers: half the bytes, and finer than can be seen."""
    every = [b.place[:, moving] for b in (where, ghost) if b is not None]
    low, high = min(p.min() for p in every), max(p.max() for p in every)
    origin, scale = 0.5 * (low + high), max(high - low, 1e-6) / (2 * _STEPS)

    def packed(bodies: Bodies) -> str:
        place = (bodies.place[:, moving] - origin) / scale
        both = np.concatenate([place, _STEPS * bodies.turn[:, moving]], -1)
        return _text(np.clip(both.round(), -_STEPS, _STEPS).astype("<i2"))

    return {
        "poses": packed(where),
        "ghost": None if ghost is None else packed(ghost),
        "origin": [float(origin)] * 3,
        "scale": float(scale),
        "aim": _text(view.aim.astype("<f4")),
    }


def _text(numbers: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()


def _png(picture: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    colours = Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE)
    colours.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
