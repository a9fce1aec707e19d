"""The visible geoms of a MuJoCo model with their colours, and its body poses."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

from typing import NamedTuple

import mujoco
import numpy as np

_GROUPS = 3  # visible groups; later ones are for collisions or hidden
_ENDLESS = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
_PLAIN = np.array([0.5, 0.5, 0.5, 1.0])  # MuJoCo's default colour


class Geom(NamedTuple):
    """A solid fixed to a body."""

    body: int
    moves: bool
    kind: int  # mujoco.mjtGeom
    size: np.ndarray  # [3], with MuJoCo's meaning for the kind
    colour: np.ndarray  # [4], from 0 to 1
    pos: np.ndarray  # [3], in the body's frame
    quat: np.ndarray  # [4] quaternion, in the body's frame
    mesh: int = -1


class BodyPoses(NamedTuple):
    """Poses of all bodies of a model, the world first, in F frames."""

    pos: np.ndarray  # [F, B, 3]
    quat: np.ndarray  # [F, B, 4]


def visible_geoms(model: mujoco.MjModel) -> list[Geom]:
    """Return the geoms and sites that are drawn, without the ground.

    A model that hides everything that moves shows its collision geoms.
    """
    geoms = [i for i in range(model.ngeom) if int(model.geom_type[i]) not in _ENDLESS]
    visible = [i for i in geoms if model.geom_group[i] < _GROUPS and model.geom_rgba[i, 3] > 0]
    if not any(_moves(model, model.geom_bodyid[i]) for i in visible):
        visible = geoms
    sites = [
        i
        for i in range(model.nsite)
        if model.site_group[i] < _GROUPS and model.site_rgba[i, 3] > 0 and model.site_size[i, 0] > 0
    ]
    return [_geom(model, i) for i in visible] + [_site(model, i) for i in sites]


def body_poses(
    model: mujoco.MjModel,
    qpos: np.ndarray,
    mocap_pos: np.ndarray | None = None,
    mocap_quat: np.ndarray | None = None,
) -> BodyPoses:
    """Return the body poses of configurations [F, nq] and of mocap bodies."""
    data = mujoco.MjData(model)
    shape = (len(qpos), model.nbody)
    poses = BodyPoses(np.zeros((*shape, 3)), np.zeros((*shape, 4)))
    for i, configuration in enumerate(qpos):
        data.qpos[:] = configuration
        if mocap_pos is not None:
            data.mocap_pos[:] = mocap_pos[i]
        if mocap_quat is not None:
            data.mocap_quat[:] = mocap_quat[i]
        mujoco.mj_kinematics(model, data)
        poses.pos[i], poses.quat[i] = data.xpos, data.xquat
    return poses


def ground_height(model: mujoco.MjModel) -> float | None:
    """Return the height of the ground plane; None if a model has none."""
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    fixed = model.body_weldid[model.geom_bodyid] == 0
    level = np.abs(model.geom_quat[:, 1:3]).max(-1, initial=0.0) < 1e-3
    heights = (model.geom_pos + model.body_pos[model.geom_bodyid])[planes & fixed & level, 2]
    return float(heights.max()) if len(heights) else None


def _moves(model: mujoco.MjModel, body: int) -> bool:
    welded = int(model.body_weldid[body])
    return welded != 0 or int(model.body_mocapid[model.body_rootid[body]]) >= 0


def _geom(model: mujoco.MjModel, i: int) -> Geom:
    body = int(model.geom_bodyid[i])
    kind, mesh = int(model.geom_type[i]), int(model.geom_dataid[i])
    size, colour = model.geom_size[i].copy(), _colour(model, i)
    pos, quat = model.geom_pos[i].copy(), model.geom_quat[i].copy()
    return Geom(body, _moves(model, body), kind, size, colour, pos, quat, mesh)


def _site(model: mujoco.MjModel, i: int) -> Geom:
    body = int(model.site_bodyid[i])
    kind, size, colour = int(model.site_type[i]), model.site_size[i].copy(), model.site_rgba[i]
    pos, quat = model.site_pos[i].copy(), model.site_quat[i].copy()
    return Geom(body, _moves(model, body), kind, size, colour.astype(float), pos, quat)


def _colour(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return a geom's own colour, or its material's times the mean of its texture."""
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
