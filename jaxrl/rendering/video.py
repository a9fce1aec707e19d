"""From watched episodes to a file: a page to look around in, a film, or a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl.envs import env_adapter
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.rendering import geoms, html_viewer, images, obs_image, software_renderer
from jaxrl.rendering.episodes import RecordedEpisode
from jaxrl.rendering.geoms import Bodies
from jaxrl.utils import atomic_io

# Pictures per second, of a GIF for its pauses are whole hundredths; a page moves smoothly between.
_RATES = {".html": 30.0, ".gif": 25.0, ".mp4": 30.0, ".png": 25.0}
_NO_CLOCK = 10.0  # of worlds that have no seconds
_MOMENTS = 4  # of an episode in one picture


class VideoSpec(NamedTuple):
    """How to show episodes: which world, how many pictures a second, how much, and by what."""

    env: VectorEnv
    title: str
    fps: float | None = None
    seconds: float | None = None
    gl: bool = False


def write(film: VideoSpec, watched: Sequence[RecordedEpisode], path: Path) -> None:
    """Write episodes into a file of a kind that its name tells."""
    model = env_adapter.mujoco_model(film.env.env.inner)
    if film.gl and (model is None or path.suffix == ".html"):
        raise UserError("--gl: there is nothing for MuJoCo to draw here; leave it out.")
    if path.suffix == ".html":
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_io.write_text(path, _page(film, watched, model))
        return
    drawn = [_pictures(film, one, model, path.suffix) for one in watched]
    if path.suffix == ".png":
        images.save([_sheet(drawn)], path, 1.0)
        return
    pause = _timing(film, path.suffix)[1]
    images.save([picture for episode in drawn for picture in episode], path, 1.0 / pause)


def _page(film: VideoSpec, watched: Sequence[RecordedEpisode], model: Any) -> str:
    if model is None:
        shown = [(_told(film, one), _drawn(film, one)) for one in watched]
        return html_viewer.of_pictures(film.title, shown)
    poses = [_bodies(film, one, model, ".html") for one in watched]
    told = [_told(film, one) for one in watched]
    return html_viewer.of_model(
        film.title, model, [(t, *p) for t, p in zip(told, poses, strict=True)]
    )


def _pictures(film: VideoSpec, one: RecordedEpisode, model: Any, kind: str) -> list[np.ndarray]:
    """Return an episode's pictures; those of a picture file are but a few moments."""
    if model is None:
        drawn = _drawn(film, one)
        return [drawn[len(drawn) // 2]] if kind == ".png" else drawn
    where, ghost = _bodies(film, one, model, kind)
    last = len(where.place) - 1
    few = np.linspace(0, last, _MOMENTS).round().astype(int).tolist()
    moments = few if kind == ".png" else list(range(last + 1))
    if film.gl:
        from jaxrl.rendering import mujoco_renderer

        qpos = np.asarray(one.shown["qpos"])[_moments(film, one, kind)]
        drawn = mujoco_renderer.paint(model, where, qpos, moments)
    else:
        drawn = software_renderer.paint(model, where, ghost, ghost=True, moments=moments)
    return [images.captioned(picture, one.title) for picture in drawn]


def _drawn(film: VideoSpec, one: RecordedEpisode) -> list[np.ndarray]:
    """Return what a world without a model draws of itself, or else what was seen in it."""
    inner = film.env.env.inner
    inner = getattr(inner, "unwrapped", inner)
    moments = _moments(film, one, ".gif")
    if not hasattr(inner, "draw"):
        return obs_image.pictures(jax.tree.map(lambda leaf: leaf[moments], one.shown))
    return [inner.draw(jax.tree.map(lambda leaf, t=t: leaf[t], one.shown)) for t in moments]


def _bodies(
    film: VideoSpec, one: RecordedEpisode, model: Any, kind: str
) -> tuple[Bodies, Bodies | None]:
    shown = jax.tree.map(lambda leaf: np.asarray(leaf)[_moments(film, one, kind)], one.shown)
    by_hand = {name: shown[name] for name in ("mocap_pos", "mocap_quat") if name in shown}
    ghost = geoms.bodies(model, shown["ghost"]) if "ghost" in shown else None
    return geoms.bodies(model, shown["qpos"], **by_hand), ghost


def _timing(film: VideoSpec, kind: str) -> tuple[int, float]:
    """Return how many steps lie between pictures, and how many seconds."""
    step = env_adapter.step_seconds(film.env.env.inner)
    if step is None:
        return 1, 1.0 / (film.fps or _NO_CLOCK)
    step *= film.env.action_repeat
    stride = max(1, round(1.0 / ((film.fps or _RATES[kind]) * step)))
    return stride, stride * step


def _moments(film: VideoSpec, one: RecordedEpisode, kind: str) -> np.ndarray:
    """Return which states are shown: the first, others after it, and the last."""
    stride, pause = _timing(film, kind)
    last = len(one.rewards)
    if film.seconds is not None:
        last = min(last, max(1, round(film.seconds / pause)) * stride)
    broken = [~np.isfinite(x).reshape(len(x), -1).all(1) for x in jax.tree.leaves(one.shown)]
    lost = np.flatnonzero(np.any(broken, axis=0))
    last = min(last, max(int(lost[0]) - 1, 0)) if len(lost) else last  # physics left the numbers
    return np.unique(np.append(np.arange(0, last, stride), last))


def _told(film: VideoSpec, one: RecordedEpisode) -> html_viewer.Episode:
    stride, pause = _timing(film, ".html")
    moments = _moments(film, one, ".html")
    sums = np.concatenate([[0.0], np.cumsum(one.rewards)])[moments]
    return html_viewer.Episode(
        title=one.title,
        success=one.success,
        steps=int(moments[-1]),
        returns=sums,
        stride=stride,
        pause=pause,
        clock=env_adapter.step_seconds(film.env.env.inner) is not None,
    )


def _sheet(drawn: list[list[np.ndarray]]) -> np.ndarray:
    """Return one picture: a row for each episode."""
    rows = [software_renderer.side_by_side(row) for row in drawn]
    return np.concatenate(rows, axis=0)
