"""Look at motions: `python -m jaxrl.clips.inspect CLIP --out clip.gif` says and shows what is in.

CLIP is any file that `jaxrl.motion` loads, or a folder of them, of which there is a row each. A
.gif shows the whole clip as training would use it (within limits, on the ground), a .png some
moments of it side by side.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from jaxrl.config import env_names
from jaxrl.errors import UserError, exit_status
from jaxrl.motion import formats, ground, synthetic
from jaxrl.motion import skeleton as skeletons
from jaxrl.motion.clip import Clip, limited, resample
from jaxrl.motion.clip_stats import Beyond, Survey, survey
from jaxrl.motion.skeleton import Skeleton
from jaxrl.rendering import software_renderer

_FPS = 25.0  # of a GIF at most: pauses in it are whole hundredths of a second
_MOMENTS = 6
_MOMENT_SIZE = (240, 360)
_NAME_IT = "Name such a file, or a folder of them."


@dataclass(frozen=True)
class InspectArgs:
    """Say how long and fast motions are and what is wrong with them, and draw one."""

    clip: Annotated[Path | None, tyro.conf.Positional] = None
    """Motion file, or a folder of them; one made of sines when not given."""
    out: Path | None = None
    """File to draw to: .gif, or .png for some moments side by side."""
    model: str | None = None
    """MuJoCo model (.xml) that moves; our humanoid when not given."""
    fps: float | None = None
    """Frames per second of a file that does not say (loco-mujoco's)."""
    seconds: float = 20.0
    """Draw no more than this, from the start."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    program = "python -m jaxrl.clips.inspect"
    return exit_status(lambda: _inspect(tyro.cli(InspectArgs, args=arguments, prog=program)))


def _inspect(command: InspectArgs) -> None:
    if command.out is not None and command.out.suffix not in (".gif", ".png"):
        raise UserError(f"--out '{command.out}': the file must end in .gif or .png.")
    for flag, value in (("--seconds", command.seconds), ("--fps", command.fps)):
        if value is not None and not 0 < value < np.inf:
            raise UserError(f"{flag} must be greater than 0, not {value}.")
    skeleton = skeletons.describe(skeletons.load_model(command.model))
    found = _clips(command, skeleton)
    if command.out is not None and len(found) != 1:
        raise UserError(f"--out draws one clip, but there are {len(found)}: name one of them.")
    surveys = [survey(clip, skeleton) for clip in found]
    print(description(surveys[0]) if len(surveys) == 1 else table(surveys))
    if command.out is not None:
        _draw(found[0], skeleton, command.out, command.seconds)


def _clips(command: InspectArgs, skeleton: Skeleton) -> list[Clip]:
    if command.clip is not None:
        return formats.read(command.clip, skeleton, command.fps)
    if command.model is not None:
        raise UserError("With a --model of your own, a clip for it is needed too.")
    print(f"{env_names.NO_CLIP}{env_names.CLIP_SOURCES}{_NAME_IT}\n")
    return [synthetic.stepping(skeleton)]


def description(found: Survey) -> str:
    """Return what is known of one clip, a line each."""
    joint, fastest = found.fastest
    low, high = found.root_heights
    lines = {
        "name": found.name,
        "length": f"{found.seconds:.2f} s, {found.frames} frames at {found.fps:g} per second",
        "loops": "yes" if found.loops else "no",
        "plan": "yes" if found.planned else "no (python -m jaxrl.clips.plan makes one)",
        "speed of the root": f"{found.speed:.2f} m/s on average",
        "height of the root": f"{low:.3f} to {high:.3f} m",
        "lowest point": f"{_level(found.lowest)} m as it is",
        "once on the ground": f"{_level(found.lowest_grounded)} m",
        "fastest joint": f"{joint}, {fastest:.1f} rad/s",
        "joints beyond limits": "none" if not found.beyond else "",
    }
    text = [f"{name:<22}{value}".rstrip() for name, value in lines.items()]
    text += [f"  {_words(one, found.frames)}" for one in found.beyond]
    return "\n".join(text + [f"{'mended':<22}{line}" for line in found.mended])


def _level(height: float) -> str:
    return f"{round(height, 3) + 0.0:+.3f}"  # of a negative zero, 0 makes a plain one


def _words(beyond: Beyond, frames: int) -> str:
    return f"{beyond.joint}: by up to {beyond.by:.3f} rad, in {beyond.frames} of {frames} frames"


def table(found: list[Survey]) -> str:
    """Return what is known of several clips, a row each."""
    rows = [_HEADER, *(_row(one) for one in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = []
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([row[0].ljust(len(first)), *others]))
    mended = [f"{one.name}, mended: {line}" for one in found for line in one.mended]
    return "\n".join(lines + mended)


# fmt: off
_HEADER = (
    "clip", "seconds", "frames", "fps", "loops", "plan", "m/s", "root height", "lowest",
    "on ground", "rad/s", "fastest joint", "beyond limits",
)
# fmt: on


def _row(found: Survey) -> tuple[str, ...]:
    low, high = found.root_heights
    worst = max(found.beyond, key=lambda one: one.by, default=None)
    more = f" and {len(found.beyond) - 1} more" if len(found.beyond) > 1 else ""
    return (
        found.name,
        f"{found.seconds:.2f}",
        str(found.frames),
        f"{found.fps:g}",
        "yes" if found.loops else "no",
        "yes" if found.planned else "no",
        f"{found.speed:.2f}",
        f"{low:.2f} to {high:.2f}",
        _level(found.lowest),
        _level(found.lowest_grounded),
        f"{found.fastest[1]:.1f}",
        found.fastest[0],
        "none" if worst is None else f"{worst.joint} {worst.by:.2f} ({worst.frames}){more}",
    )


def _draw(clip: Clip, skeleton: Skeleton, out: Path, seconds: float) -> None:
    from jaxrl.rendering import images

    clip = ground.grounded(limited(clip, skeleton), skeleton.model)
    shown = clip._replace(qpos=clip.qpos[: max(2, round(seconds * clip.fps) + 1)])
    shown = resample(shown, min(_FPS, shown.fps), skeleton.model)
    if out.suffix == ".png":
        moments = np.linspace(0, len(shown.qpos) - 1, _MOMENTS).round().astype(int).tolist()
        drawn = software_renderer.render_poses(
            skeleton.model, shown.qpos, size=_MOMENT_SIZE, frames=moments
        )
        drawn = [software_renderer.side_by_side(drawn)]
    else:
        drawn = software_renderer.render_poses(skeleton.model, shown.qpos)
    images.save(drawn, out, shown.fps)
    part = "" if shown.seconds > clip.seconds - 1.0 / shown.fps else f" of {clip.seconds:.2f} s"
    print(f"{shown.seconds:.2f} s{part} drawn to {out}")


if __name__ == "__main__":
    sys.exit(main())
