"""Inspect motions: `python -m jaxrl.clips.inspect CLIP --out clip.gif` prints statistics and draws.

CLIP is any file that `jaxrl.motion` loads, or a folder of them, which gives a row each. A .gif
shows the clip as training uses it (within limits, on the ground), a .png some frames of it.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.config import env_names
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line

if TYPE_CHECKING:
    from jaxrl.motion.clip import Clip
    from jaxrl.motion.clip_stats import ClipStats, LimitViolation
    from jaxrl.motion.skeleton import Skeleton

_FPS = 25.0  # of a GIF at most: its delays are multiples of 0.01 s
_FRAMES = 6  # of a .png
_FRAME_SIZE = (240, 360)
_NAME_IT = "Name such a file, or a folder of them."


@dataclass(frozen=True)
class InspectArgs:
    """Print lengths, speeds and limit violations of motions, and draw one."""

    clip: Annotated[Path | None, tyro.conf.Positional] = None
    """Motion file, or a folder of them; a synthetic one by default."""
    out: Path | None = None
    """File to draw to: .gif, or .png for some frames side by side."""
    model: str | None = None
    """MuJoCo model (.xml); the packaged humanoid by default."""
    fps: float | None = None
    """Frames per second of a file without a rate (loco-mujoco's)."""
    seconds: float = 20.0
    """Draw no more than this, from the start."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    module = "clips.inspect"
    return exit_status(lambda: _inspect(command_line.parse(InspectArgs, arguments, module)))


def _inspect(args: InspectArgs) -> None:
    if args.out is not None and args.out.suffix not in (".gif", ".png"):
        raise UserError(f"--out '{args.out}': the file must end in .gif or .png.")
    for flag, value in (("--seconds", args.seconds), ("--fps", args.fps)):
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag} must be greater than 0, not {value}.")
    from jaxrl.motion import clip_stats
    from jaxrl.motion import skeleton as skeletons

    skeleton = skeletons.describe(skeletons.load_model(args.model))
    clips = _clips(args, skeleton)
    if args.out is not None and len(clips) != 1:
        raise UserError(f"--out draws one clip, but there are {len(clips)}: name one of them.")
    stats = [clip_stats.compute(clip, skeleton) for clip in clips]
    print(description(stats[0]) if len(stats) == 1 else table(stats))
    if args.out is not None:
        _draw(clips[0], skeleton, args.out, args.seconds)


def _clips(args: InspectArgs, skeleton: "Skeleton") -> "list[Clip]":
    from jaxrl.motion import formats, synthetic

    if args.clip is not None:
        return formats.read(args.clip, skeleton, args.fps)
    if args.model is not None:
        raise UserError("With a --model of your own, a clip for it is needed too.")
    print(f"{env_names.NO_CLIP}{env_names.CLIP_SOURCES}{_NAME_IT}\n")
    return [synthetic.stepping(skeleton)]


def description(stats: "ClipStats") -> str:
    """Return the statistics of one clip, a line each."""
    joint, fastest = stats.fastest
    low, high = stats.root_heights
    lines = {
        "name": stats.name,
        "length": f"{stats.seconds:.2f} s, {stats.frames} frames at {stats.fps:g} per second",
        "loops": "yes" if stats.loops else "no",
        "plan": "yes" if stats.planned else f"no ({command_line.prog('clips.plan')} makes one)",
        "speed of the root": f"{stats.speed:.2f} m/s on average",
        "height of the root": f"{low:.3f} to {high:.3f} m",
        "lowest point": f"{_level(stats.lowest)} m as it is",
        "once on the ground": f"{_level(stats.lowest_grounded)} m",
        "fastest joint": f"{joint}, {fastest:.1f} rad/s",
        "joints beyond limits": "none" if not stats.violations else "",
    }
    text = [f"{name:<22}{value}".rstrip() for name, value in lines.items()]
    text += [f"  {_violation(one, stats.frames)}" for one in stats.violations]
    return "\n".join(text + [f"{'repaired':<22}{line}" for line in stats.repairs])


def _level(height: float) -> str:
    return f"{round(height, 3) + 0.0:+.3f}"  # adding 0 turns -0 into 0


def _violation(violation: "LimitViolation", frames: int) -> str:
    worst, count = violation.excess, violation.frames
    return f"{violation.joint}: by up to {worst:.3f} rad, in {count} of {frames} frames"


def table(stats: "list[ClipStats]") -> str:
    """Return the statistics of several clips, a row each."""
    rows = [_HEADER, *(_row(one) for one in stats)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = []
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([row[0].ljust(len(first)), *others]))
    repairs = [f"{one.name}, repaired: {line}" for one in stats for line in one.repairs]
    return "\n".join(lines + repairs)


# fmt: off
_HEADER = (
    "clip", "seconds", "frames", "fps", "loops", "plan", "m/s", "root height", "lowest",
    "on ground", "rad/s", "fastest joint", "beyond limits",
)
# fmt: on


def _row(stats: "ClipStats") -> tuple[str, ...]:
    low, high = stats.root_heights
    worst = max(stats.violations, key=lambda one: one.excess, default=None)
    more = f" and {len(stats.violations) - 1} more" if len(stats.violations) > 1 else ""
    return (
        stats.name,
        f"{stats.seconds:.2f}",
        str(stats.frames),
        f"{stats.fps:g}",
        "yes" if stats.loops else "no",
        "yes" if stats.planned else "no",
        f"{stats.speed:.2f}",
        f"{low:.2f} to {high:.2f}",
        _level(stats.lowest),
        _level(stats.lowest_grounded),
        f"{stats.fastest[1]:.1f}",
        stats.fastest[0],
        "none" if worst is None else f"{worst.joint} {worst.excess:.2f} ({worst.frames}){more}",
    )


def _draw(clip: "Clip", skeleton: "Skeleton", out: Path, seconds: float) -> None:
    import numpy as np

    from jaxrl.motion import ground
    from jaxrl.motion.clip import clamp_to_limits, resample
    from jaxrl.rendering import images, software_renderer

    clip = ground.put_on_ground(clamp_to_limits(clip, skeleton), skeleton.model)
    part = clip._replace(qpos=clip.qpos[: max(2, round(seconds * clip.fps) + 1)])
    part = resample(part, min(_FPS, part.fps), skeleton.model)
    if out.suffix == ".png":
        chosen = np.linspace(0, len(part.qpos) - 1, _FRAMES).round().astype(int).tolist()
        frames = software_renderer.render_poses(
            skeleton.model, part.qpos, size=_FRAME_SIZE, frames=chosen
        )
        frames = [software_renderer.side_by_side(frames)]
    else:
        frames = software_renderer.render_poses(skeleton.model, part.qpos)
    images.save(frames, out, part.fps)
    whole = part.seconds > clip.seconds - 1.0 / part.fps
    suffix = "" if whole else f" of {clip.seconds:.2f} s"
    print(f"{part.seconds:.2f} s{suffix} drawn to {out}")


if __name__ == "__main__":
    sys.exit(main())
