"""Plan feasible versions of motions: `python -m jaxrl.clips.plan CLIPS OUT` writes one .npz each.

CLIPS is a file that `jaxrl.motion` loads, or a folder of them. Each is written to the folder OUT
with a physically feasible plan, which training then tracks (`--motion.clips OUT`), or without one
if none was found. Clips that already have a plan in OUT are skipped, so an interrupted command can
be repeated.
"""

import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.config import MotionConfig
from jaxrl.config.mppi import MPPIConfig
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line

if TYPE_CHECKING:
    from rich.progress import Progress

    from jaxrl.motion.clip import Clip
    from jaxrl.motion.mppi import Planner


@dataclass(frozen=True)
class PlanArgs:
    """Find versions of motions that a simulated humanoid can follow."""

    clips: Annotated[Path, tyro.conf.Positional]
    """Motion file, or a folder of them."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write to; created if missing."""
    model: Path | None = None
    """MuJoCo model (.xml); the packaged humanoid by default."""
    substeps: int = MotionConfig.substeps
    """Physics steps per frame, as --motion.substeps in training."""
    loop_seconds: float = 0.0
    """Clips that loop are repeated until they last at least this long."""
    search: Annotated[MPPIConfig, tyro.conf.arg(name="")] = field(default_factory=MPPIConfig)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _plan(command_line.parse(PlanArgs, arguments, "clips.plan")))


def _plan(args: PlanArgs) -> None:
    _check(args)
    from rich.console import Console
    from rich.progress import Progress

    from jaxrl.motion import library, skeleton
    from jaxrl.motion.clip import FPS, resample
    from jaxrl.motion.formats import native
    from jaxrl.motion.humanoid import Humanoid
    from jaxrl.motion.mppi import Planner

    model = skeleton.load_model(str(args.model) if args.model else None)
    clips = library.load_clips(str(args.clips), model, args.loop_seconds)
    args.out.mkdir(parents=True, exist_ok=True)
    planned = _already_planned(args, [clip.name for clip in clips])
    planner = Planner(Humanoid(model, FPS, args.substeps), args.search)
    print(f"{'clip':<32}{'frames':>7}{'MPJPE':>9}{'worst frame':>13}{'seconds':>9}")
    with Progress(console=Console(), transient=True) as bars:
        for clip in clips:
            path = args.out / f"{clip.name}.npz"
            if path in planned:
                print(f"{clip.name:<32} has a plan: skipped")
                continue
            # A plan does not loop.
            clip = resample(clip, FPS, model)._replace(loops=False, plan=None)
            clip, line = _plan_clip(clip, planner, bars)
            native.write(path, clip, planner.humanoid.skeleton)
            print(line)
    print(f"\ntrain            {_training_command(args)}")


def _check(args: PlanArgs) -> None:
    search = args.search
    problems = {
        "--substeps must be at least 1": args.substeps < 1,
        "--samples must be at least 1": search.samples < 1,
        "--frames must be at least 1": search.frames < 1,
        "--rounds must be at least 1": search.rounds < 1,
        "--seed must not be negative": search.seed < 0,
        "--action-range must be greater than 0": not 0 < search.action_range < math.inf,
        "--spread must be greater than 0": not 0 < search.spread < math.inf,
        "--loop-seconds must not be negative": not 0 <= args.loop_seconds < math.inf,
    }
    for problem, present in problems.items():
        if present:
            raise UserError(f"{problem}.")
    from jaxrl.motion import formats

    files = formats.files(args.clips)
    if args.out.resolve() in {file.parent.resolve() for file in files}:
        raise UserError(f"'{args.out}': choose another folder than that of the clips.")
    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"'{args.out}' is a file; name a folder to write to.")


def _already_planned(args: PlanArgs, names: list[str]) -> set[Path]:
    """Return the files that have a plan, all of which must be for the same physics."""
    from jaxrl.motion import formats
    from jaxrl.motion.formats import native
    from jaxrl.motion.formats.npz import opened

    paths = [args.out / f"{name}.npz" for name in names]
    planned = {path for path in paths if path.exists() and formats.any_planned(path)}
    for path in sorted(planned):
        with opened(path) as arrays:
            substeps = int(arrays.number(native.SUBSTEPS))
        if substeps != args.substeps:
            raise UserError(
                f"'{path}' was planned with --substeps {substeps}, not {args.substeps}: "
                "name another folder, or remove what is in this one."
            )
    return planned


def _plan_clip(clip: "Clip", planner: "Planner", bars: "Progress") -> "tuple[Clip, str]":
    """Return a clip with a plan, if one tracks it to the end, and a line to print."""
    import numpy as np

    from jaxrl.motion import library
    from jaxrl.motion.clip import FPS
    from jaxrl.motion.tracking_metrics import EVALUATION_LIMIT

    started = time.monotonic()
    bar = bars.add_task(clip.name.replace("[", r"\["), total=len(clip.qpos) - 1)
    captured = library.build([clip], planner.model, FPS).captured_motion
    plan = planner.plan(captured, lambda: bars.advance(bar))
    bars.remove_task(bar)
    planned = clip._replace(plan=plan)
    built = library.build([planned], planner.model, FPS)
    offset = np.asarray(built.reference.position - built.captured_motion.position)
    distance = np.linalg.norm(offset, axis=-1).mean(-1)
    line = f"{clip.name:<32}{len(distance):>7}"
    if plan is None or not distance.max() < EVALUATION_LIMIT:
        return clip, f"{line}  no plan found: try --samples 1000, or another --seed"
    seconds = time.monotonic() - started
    return (
        planned,
        f"{line}{1e3 * distance.mean():>6.0f} mm{distance.max():>11.2f} m{seconds:>9.0f}",
    )


def _training_command(args: PlanArgs) -> str:
    """Return the command that trains on the planned clips."""
    flags = [f" --motion.model {args.model}"] if args.model else []
    flags += (
        [f" --motion.substeps {args.substeps}"] if args.substeps != MotionConfig.substeps else []
    )
    return f"{command_line.prog('train')} imitate --motion.clips {args.out}{''.join(flags)}"


if __name__ == "__main__":
    sys.exit(main())
