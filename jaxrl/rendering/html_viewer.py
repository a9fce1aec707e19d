"""One HTML file that plays episodes, without fetching anything.

A model is drawn in 3-D by three.js (MIT licence, in web/; `tools/three` bundles it).
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

import base64
import html
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np

from jaxrl.rendering import geoms, primitives, scene
from jaxrl.rendering.camera import View, camera_direction
from jaxrl.rendering.geoms import BodyPoses, Geom

_WEB = Path(__file__).parent / "web"
_INT16_MAX = 32767
# Of the page that steers a robot, in seconds: how far ahead paths are compared, and how far apart
# frames of one episode are if they are to be other motion.
STEER_HORIZONS = (1 / 3, 2 / 3, 1.0)
STEER_APART = 0.5
# MuJoCo's geom types, as viewer.js names them.
_KINDS = {2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh"}


class EpisodeInfo(NamedTuple):
    """An episode as the page lists it; frames are `stride` steps and `pause` seconds apart."""

    title: str
    success: bool | None
    steps: int
    returns: np.ndarray  # [F], return up to each frame
    stride: int = 1
    pause: float = 0.1
    clock: bool = True  # whether seconds mean anything


class GalleryView(NamedTuple):
    """One of several views on a page: a heading, lines below it, and what it plays."""

    title: str
    lines: Sequence[str]
    data: dict[str, Any]  # of `model_data` or `image_data`


def model_data(
    model: mujoco.MjModel,
    episodes: Sequence[tuple[EpisodeInfo, BodyPoses, BodyPoses | None]],
) -> dict[str, Any]:
    """Return what a page needs to play the poses of a model, with a ghost or without."""
    visible, shapes = geoms.visible_geoms(model), primitives.model_shapes(model)
    framed = [scene.frame_scene(shapes, poses) for _, poses, _ in episodes]
    moving = _moving(model)
    radius = max(view.radius for view, _ in framed)
    return {
        "geoms": [_geom(geom, moving) for geom in visible],
        "meshes": _meshes(model),
        "bodies": len(moving),
        "radius": radius,
        "ground": min(ground for _, ground in framed),
        "cell": 10.0 ** math.floor(math.log10(radius)) / (1 if radius < 3 else 5),
        "direction": camera_direction(max(view.elevation for view, _ in framed)).tolist(),
        "episodes": [
            _describe(info) | _packed_poses(poses, ghost, view, moving)
            for (info, poses, ghost), (view, _) in zip(episodes, framed, strict=True)
        ],
    }


def steer_data(model: mujoco.MjModel, pause: float) -> dict[str, Any]:
    """Return what a page of `model_data` needs besides, so that its figure can be steered."""
    seconds = {"horizons": STEER_HORIZONS, "apart": STEER_APART}
    return {"steer": {"root": steered_body(model), "pause": pause} | seconds}


def steered_body(model: mujoco.MjModel) -> int | None:
    """Return the number of a robot's root among the bodies that move; None if it is fixed."""
    if not model.njnt or model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        return None  # a free body after a fixed robot is what the robot handles
    root, moving = int(model.jnt_bodyid[0]), _moving(model)
    return moving.index(root) if root in moving else None


def _moving(model: mujoco.MjModel) -> list[int]:
    """Return the bodies that are drawn and move."""
    return sorted({geom.body for geom in geoms.visible_geoms(model) if geom.moves})


def image_data(episodes: Sequence[tuple[EpisodeInfo, Sequence[np.ndarray]]]) -> dict[str, Any]:
    """Return what a page needs to play images, uint8 [height, width, 3]."""
    described = [_describe(info) | {"images": list(map(_png, frames))} for info, frames in episodes]
    return {"episodes": described}


def page(title: str, data: dict[str, Any]) -> str:
    """Return a page that plays episodes, those of `model_data` or `image_data`."""
    steer = _read("steer.js") if "steer" in data else ""
    parts = {
        "title": html.escape(title),
        "data": _json(data),
        "viewer": steer + _read("viewer.js"),
        "three": _read("three.min.js") if "geoms" in data else "",
    }
    return _fill("page.html", parts)


def gallery_page(title: str, intro: str, views: Sequence[GalleryView]) -> str:
    """Return a page with several views, which play again and again without controls."""
    data = {
        "page": _read("page.html"),
        "viewer": _read("viewer.js"),
        "three": _read("three.min.js"),
        "views": [view.data | {"embedded": True} for view in views],
    }
    figures = [_figure(number, view) for number, view in enumerate(views)]
    parts = {
        "title": html.escape(title),
        "intro": _code(intro),
        "figures": "\n".join(figures),
        "data": _json(data),
    }
    return _fill("gallery.html", parts)


def _figure(number: int, view: GalleryView) -> str:
    lines = "".join(f"<p>{_code(line)}</p>" for line in view.lines)
    title = html.escape(view.title)
    frame = f'<iframe data-number="{number}" title="{title}"></iframe>'
    return f"<figure>{frame}<figcaption><h2>{title}</h2>{lines}</figcaption></figure>"


def _code(text: str) -> str:
    """Return text as HTML; what is between backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _json(data: dict[str, Any]) -> str:
    """Return JSON for a script, which no text of an episode may end early."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _read(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")


def _fill(name: str, parts: dict[str, str]) -> str:
    """Return a template with its parts."""
    return re.sub(r"\$(\w+)", lambda match: parts[match[1]], _read(name))


def _describe(info: EpisodeInfo) -> dict[str, Any]:
    described = info._asdict() | {"frames": len(info.returns)}
    return described | {"returns": _base64(info.returns.astype("<f4"))}


def _geom(geom: Geom, moving: list[int]) -> dict[str, Any]:
    return {
        "kind": _KINDS[geom.kind],
        "size": geom.size.round(5).tolist(),
        "colour": geom.colour.round(3).tolist(),
        "pos": geom.pos.round(5).tolist(),
        "quat": geom.quat.round(6).tolist(),
        "mesh": geom.mesh,
        "body": moving.index(geom.body) if geom.moves else -1,
    }


def _meshes(model: mujoco.MjModel) -> list[dict[str, str]]:
    meshes = []
    for i in range(model.nmesh):
        first_vertex, first_face = model.mesh_vertadr[i], model.mesh_faceadr[i]
        points = model.mesh_vert[first_vertex : first_vertex + model.mesh_vertnum[i]]
        faces = model.mesh_face[first_face : first_face + model.mesh_facenum[i]]
        mesh = {"points": points.astype("<f4"), "faces": faces.astype("<u4")}
        meshes.append({name: _base64(array) for name, array in mesh.items()})
    return meshes


def _packed_poses(
    poses: BodyPoses, ghost: BodyPoses | None, view: View, moving: list[int]
) -> dict[str, Any]:
    """Return poses as 16-bit integers: half the bytes, with invisible rounding."""
    positions = [p.pos[:, moving] for p in (poses, ghost) if p is not None]
    low, high = min(p.min() for p in positions), max(p.max() for p in positions)
    origin, scale = 0.5 * (low + high), max(high - low, 1e-6) / (2 * _INT16_MAX)

    def pack(poses: BodyPoses) -> str:
        pos = (poses.pos[:, moving] - origin) / scale
        values = np.concatenate([pos, _INT16_MAX * poses.quat[:, moving]], -1)
        return _base64(np.clip(values.round(), -_INT16_MAX, _INT16_MAX).astype("<i2"))

    return {
        "poses": pack(poses),
        "ghost": None if ghost is None else pack(ghost),
        "origin": [float(origin)] * 3,
        "scale": float(scale),
        "aim": _base64(view.aim.astype("<f4")),
    }


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _png(image: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    colours = Image.fromarray(image).convert("P", palette=Image.Palette.ADAPTIVE)
    colours.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
