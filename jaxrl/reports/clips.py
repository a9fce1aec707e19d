"""Files of an evaluation by trials: a table of all of them, and a video of one."""

from pathlib import Path
from typing import Any

from jaxrl.envs import env_adapter
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.evaluation.episodes import Episodes
from jaxrl.rendering import images
from jaxrl.utils import atomic_io


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one line per trial, separated by tabs."""
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    atomic_io.write_text(path, "".join("\t".join(line) + "\n" for line in lines))


def _cell(value: Any) -> str:
    if value is None:
        return "nan"
    return str(int(value)) if isinstance(value, bool) else str(value)


def write_video(result: Episodes, env: VectorEnv, name: str, path: Path) -> None:
    """Write a video of one trial beside its reference."""
    from jaxrl.rendering import software_renderer

    number, trial_poses = env.hooks.trial_names.index(name), env.hooks.trial_poses
    assert trial_poses, "an environment whose trials are drawn has poses"
    poses, reference = trial_poses(result, number)
    frames = software_renderer.render_poses(
        env_adapter.mujoco_model(env.env.inner), poses, reference
    )
    images.save(frames, path, 1.0 / (env_adapter.step_seconds(env.env.inner) or 1.0 / 30.0))
