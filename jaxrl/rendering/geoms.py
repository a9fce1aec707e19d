"""What of a model is seen: its parts with their colours, and where its bodies are in each pose."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

from typing import NamedTuple

import mujoco
import numpy as np

_SHOWN = 3  # groups of parts from here on are for collisions or hidden
_ENDLESS = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
_PLAIN = np.array([0.5, 0.5, 0.5, 1.0])  # MuJoCo's colour of a part that was given none


class Part(NamedTuple):
    """A simple solid, fixed to a body."""

    body: int
    moves: bool
    kind: int  # mujoco.mjtGeom
    size: np.ndarray  # [3], as MuJoCo means it for the kind
    colour: np.ndarray  # [4], from 0 to 1
    place: np.ndarray  # [3], in the body's frame
    turn: np.ndarray  # [4], in the body's frame, a quaternion
    mesh: int = -1


class Bodies(NamedTuple):
    """Where all bodies of a model are, the world first, in F poses."""

    place: np.ndarray  # [F, B, 3]
    turn: np.ndarray  # [F, B, 4]


def of(model: mujoco.MjModel) -> list[Part]:
    """Return the parts that are seen; the ground is none of them.

    Of a model that hides everything that moves, what collides is shown.
    """
    geoms = [i for i in range(model.ngeom) if int(model.geom_type[i]) not in _ENDLESS]
    seen = [i for i in geoms if model.geom_group[i] < _SHOWN and model.geom_rgba[i, 3] > 0]
    if not any(_moves(model, model.geom_bodyid[i]) for i in seen):
        seen = geoms
    sites = [
        i
        for i in range(model.nsite)
        if model.site_group[i] < _SHOWN and model.site_rgba[i, 3] > 0 and model.site_size[i, 0] > 0
    ]
    return [_geom(model, i) for i in seen] + [_site(model, i) for i in sites]


def bodies(
    model: mujoco.MjModel,
    qpos: np.ndarray,
    mocap_pos: np.ndarray | None = None,
    mocap_quat: np.ndarray | None = None,
) -> Bodies:
    """Return where bodies are in poses [F, nq]; the last two move what is moved by hand."""
    data = mujoco.MjData(model)
    shape = (len(qpos), model.nbody)
    found = Bodies(np.zeros((*shape, 3)), np.zeros((*shape, 4)))
    for i, pose in enumerate(qpos):
        data.qpos[:] = pose
        if mocap_pos is not None:
            data.mocap_pos[:] = mocap_pos[i]
        if mocap_quat is not None:
            data.mocap_quat[:] = mocap_quat[i]
        mujoco.mj_kinematics(model, data)
        found.place[i], found.turn[i] = data.xpos, data.xquat
    return found


def ground(model: mujoco.MjModel) -> float | None:
    """Return how high the ground is; None where a model has none."""
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    fixed = model.body_weldid[model.geom_bodyid] == 0
    level = np.abs(model.geom_quat[:, 1:3]).max(-1, initial=0.0) < 1e-3
    heights = (model.geom_pos + model.body_pos[model.geom_bodyid])[planes & fixed & level, 2]
    return float(heights.max()) if len(heights) else None


def _moves(model: mujoco.MjModel, body: int) -> bool:
    welded = int(model.body_weldid[body])
    return welded != 0 or int(model.body_mocapid[model.body_rootid[body]]) >= 0


def _geom(model: mujoco.MjModel, i: int) -> Part:
    body = int(model.geom_bodyid[i])
    kind, mesh = int(model.geom_type[i]), int(model.geom_dataid[i])
    size, colour = model.geom_size[i].copy(), _colour(model, i)
    place, turn = model.geom_pos[i].copy(), model.geom_quat[i].copy()
    return Part(body, _moves(model, body), kind, size, colour, place, turn, mesh)


def _site(model: mujoco.MjModel, i: int) -> Part:
    body = int(model.site_bodyid[i])
    kind, size, colour = int(model.site_type[i]), model.site_size[i].copy(), model.site_rgba[i]
    place, turn = model.site_pos[i].copy(), model.site_quat[i].copy()
    return Part(body, _moves(model, body), kind, size, colour.astype(float), place, turn)


def _colour(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return a part's own colour, or else its material's, on which a texture is spread."""
    own, material = model.geom_rgba[geom].astype(float), int(model.geom_matid[geom])
    if material < 0 or not np.allclose(own, _PLAIN):
        return own
    colour = model.mat_rgba[material].astype(float)
    texture = int(model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB])
    if texture >= 0 and model.tex_nchannel[texture] >= 3:
        channels, start = int(model.tex_nchannel[texture]), int(model.tex_adr[texture])
        count = int(model.tex_height[texture]) * int(model.tex_width[texture]) * channels
        pixels = model.tex_data[start : start + count].reshape(-1, channels)
        colour[:3] *= pixels[:, :3].mean(0) / 255.0
    return colour
