"""Recorded episodes to a file: an interactive page, a video, or an image."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type annotations.

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np

from jaxrl.envs import env_adapter
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.rendering import geoms, html_viewer, images, obs_image, software_renderer
from jaxrl.rendering.episodes import RecordedEpisode
from jaxrl.rendering.geoms import BodyPoses
from jaxrl.utils import atomic_io

# Frames per second by kind of file. The pauses of a GIF are whole hundredths of a second.
_FPS = {".html": 30.0, ".gif": 25.0, ".mp4": 30.0, ".png": 25.0}
_FPS_WITHOUT_TIME = 10.0  # of environments whose steps have no duration
_FRAMES_OF_IMAGE = 4  # of one episode


class VideoSpec(NamedTuple):
    """How to show episodes: environment, title, frame rate, length, renderer, keys that steer."""

    env: VectorEnv
    title: str
    fps: float | None = None
    seconds: float | None = None
    gl: bool = False
    steer: bool = False


def write(spec: VideoSpec, episodes: Sequence[RecordedEpisode], path: Path) -> None:
    """Write episodes into a file of the kind that its suffix names."""
    model = env_adapter.mujoco_model(spec.env.env.inner)
    if spec.gl and (model is None or path.suffix == ".html"):
        raise UserError("--gl: there is nothing for MuJoCo to draw here; leave it out.")
    if path.suffix == ".html":
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_io.write_text(path, html_viewer.page(spec.title, page_data(spec, episodes)))
        return
    frames = [_frames(spec, episode, model, path.suffix) for episode in episodes]
    if path.suffix == ".png":
        images.save([_sheet(frames)], path, 1.0)
        return
    pause = _timing(spec, path.suffix)[1]
    images.save([frame for episode in frames for frame in episode], path, 1.0 / pause)


def page_data(spec: VideoSpec, episodes: Sequence[RecordedEpisode]) -> dict[str, Any]:
    """Return what a page of `html_viewer` needs to play episodes."""
    model = env_adapter.mujoco_model(spec.env.env.inner)
    infos = [_info(spec, episode) for episode in episodes]
    if model is None:
        frames = [_draw(spec, episode) for episode in episodes]
        return html_viewer.image_data(list(zip(infos, frames, strict=True)))
    poses = [_body_poses(spec, episode, model, ".html") for episode in episodes]
    parts = [(info, *pair) for info, pair in zip(infos, poses, strict=True)]
    steer = html_viewer.steer_data(model, _checked_pause(infos)) if spec.steer else {}
    return html_viewer.model_data(model, parts) | steer


def _checked_pause(infos: Sequence[html_viewer.EpisodeInfo]) -> float:
    """Return the seconds between frames; refuse episodes that a robot cannot be steered through."""
    pause = infos[0].pause
    if pause > min(html_viewer.STEER_HORIZONS) / 2:
        raise UserError(f"--steer: with --fps {1 / pause:.3g} too little is recorded: use 10.")
    longest = max(len(info.returns) - 1 for info in infos) * pause
    least = max(html_viewer.STEER_HORIZONS) + 2 * html_viewer.STEER_APART
    if longest < least:
        raise UserError(
            f"--steer needs an episode of {least:g} seconds or more; the longest has {longest:.2f}."
        )
    return pause


def refuse_steering(env: VectorEnv) -> None:
    """Raise a UserError for an environment whose robot cannot be steered on a page."""
    inner = env.env.inner
    model = env_adapter.mujoco_model(inner)
    if (
        model is None
        or env_adapter.step_seconds(inner) is None
        or html_viewer.steered_body(model) is None
    ):
        raise UserError("--steer needs a robot that moves freely: leave it out.")


def _frames(
    spec: VideoSpec, episode: RecordedEpisode, model: mujoco.MjModel | None, kind: str
) -> list[np.ndarray]:
    """Return the frames of an episode; only a few for an image file."""
    if model is None:
        drawn = _draw(spec, episode)
        return [drawn[len(drawn) // 2]] if kind == ".png" else drawn
    poses, ghost = _body_poses(spec, episode, model, kind)
    last = len(poses.pos) - 1
    few = np.linspace(0, last, _FRAMES_OF_IMAGE).round().astype(int).tolist()
    chosen = few if kind == ".png" else list(range(last + 1))
    if spec.gl:
        from jaxrl.rendering import mujoco_renderer

        qpos = np.asarray(episode.states["qpos"])[_frame_steps(spec, episode, kind)]
        drawn = mujoco_renderer.render_bodies(model, poses, qpos, chosen)
    else:
        drawn = software_renderer.render_bodies(model, poses, ghost, ghost=True, frames=chosen)
    return [images.add_caption(frame, episode.title) for frame in drawn]


def _draw(spec: VideoSpec, episode: RecordedEpisode) -> list[np.ndarray]:
    """Return frames of an environment without a model: as it draws itself, or its observations."""
    inner = spec.env.env.inner
    inner = getattr(inner, "unwrapped", inner)
    steps = _frame_steps(spec, episode, ".gif")
    if not hasattr(inner, "draw"):
        obs = jax.tree.map(lambda leaf: leaf[steps], episode.states)
        return obs_image.draw_observations(obs)
    return [inner.draw(jax.tree.map(lambda leaf, t=t: leaf[t], episode.states)) for t in steps]


def _body_poses(
    spec: VideoSpec, episode: RecordedEpisode, model: mujoco.MjModel, kind: str
) -> tuple[BodyPoses, BodyPoses | None]:
    """Return the body poses of an episode's frames, and of its ghost."""
    steps = _frame_steps(spec, episode, kind)
    states = jax.tree.map(lambda leaf: np.asarray(leaf)[steps], episode.states)
    mocap = {name: states[name] for name in ("mocap_pos", "mocap_quat") if name in states}
    ghost = geoms.body_poses(model, states["ghost"]) if "ghost" in states else None
    return geoms.body_poses(model, states["qpos"], **mocap), ghost


def _timing(spec: VideoSpec, kind: str) -> tuple[int, float]:
    """Return the steps and the seconds between two frames."""
    step = env_adapter.step_seconds(spec.env.env.inner)
    if step is None:
        return 1, 1.0 / (spec.fps or _FPS_WITHOUT_TIME)
    step *= spec.env.action_repeat
    stride = max(1, round(1.0 / ((spec.fps or _FPS[kind]) * step)))
    return stride, stride * step


def _frame_steps(spec: VideoSpec, episode: RecordedEpisode, kind: str) -> np.ndarray:
    """Return the steps of the frames: the first, every `stride` after it, and the last.

    An episode that became non-finite is shown up to there.
    """
    stride, pause = _timing(spec, kind)
    last = len(episode.rewards)
    if spec.seconds is not None:
        last = min(last, max(1, round(spec.seconds / pause)) * stride)
    leaves = jax.tree.leaves(episode.states)
    nonfinite = [~np.isfinite(x).reshape(len(x), -1).all(1) for x in leaves]
    bad = np.flatnonzero(np.any(nonfinite, axis=0))
    last = min(last, max(int(bad[0]) - 1, 0)) if len(bad) else last
    return np.unique(np.append(np.arange(0, last, stride), last))


def _info(spec: VideoSpec, episode: RecordedEpisode) -> html_viewer.EpisodeInfo:
    stride, pause = _timing(spec, ".html")
    steps = _frame_steps(spec, episode, ".html")
    returns = np.concatenate([[0.0], np.cumsum(episode.rewards)])[steps]
    return html_viewer.EpisodeInfo(
        title=episode.title,
        success=episode.success,
        steps=int(steps[-1]),
        returns=returns,
        stride=stride,
        pause=pause,
        clock=env_adapter.step_seconds(spec.env.env.inner) is not None,
    )


def _sheet(frames: list[list[np.ndarray]]) -> np.ndarray:
    """Return one image with a row for each episode."""
    rows = [software_renderer.side_by_side(row) for row in frames]
    return np.concatenate(rows, axis=0)
