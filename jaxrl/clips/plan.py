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
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxrl.config import MotionConfig
from jaxrl.config.mppi import MPPIConfig
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import Progress

    from jaxrl.motion.clip import Clip, Plan
    from jaxrl.motion.humanoid import Humanoid
    from jaxrl.motion.library import Reference

    # Plans clips together, and calls a function after every frame of the longest.
    Planning = Callable[[Sequence[Reference], Callable[[], None]], Sequence[Plan | None]]


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
    physics: Literal["auto", "mujoco", "mjx"] = "auto"
    """What simulates samples: MuJoCo on the cores of the CPU, one clip after the other, or MJX on
    JAX's device, many clips at once. auto: MJX on a GPU."""
    at_once: int = 64
    """Clips that MJX plans together."""
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

    model = skeleton.load_model(str(args.model) if args.model else None)
    clips = library.load_clips(str(args.clips), model, args.loop_seconds)
    args.out.mkdir(parents=True, exist_ok=True)
    planned = _already_planned(args, [clip.name for clip in clips])
    humanoid = Humanoid(model, FPS, args.substeps)
    plan, at_once = _planning(args, humanoid)
    print(f"{'clip':<32}{'frames':>7}{'MPJPE':>9}{'worst frame':>13}{'seconds':>9}")
    todo = []
    for clip in clips:
        if args.out / f"{clip.name}.npz" in planned:
            print(f"{clip.name:<32} has a plan: skipped")
            continue
        # A plan does not loop.
        todo.append(resample(clip, FPS, model)._replace(loops=False, plan=None))
    if at_once > 1:  # clips of similar lengths together: they are padded to the longest
        todo.sort(key=lambda clip: len(clip.qpos))
    with Progress(console=Console(), transient=True) as bars:
        for first in range(0, len(todo), at_once):
            for clip, line in _plan_clips(todo[first : first + at_once], plan, humanoid, bars):
                native.write(args.out / f"{clip.name}.npz", clip, humanoid.skeleton)
                print(line)
    print(f"\ntrain            {_training_command(args)}")


def _planning(args: PlanArgs, humanoid: "Humanoid") -> "tuple[Planning, int]":
    """Return what plans clips, and how many at once."""
    import jax

    if args.physics == "mjx" or (args.physics == "auto" and jax.default_backend() == "gpu"):
        from jaxrl.motion.batched_mppi import BatchedPlanner

        return BatchedPlanner(humanoid, args.search).plan, args.at_once
    from jaxrl.motion.mppi import Planner

    planner = Planner(humanoid, args.search)
    return lambda clips, tick: [planner.plan(clip, tick) for clip in clips], 1


def _check(args: PlanArgs) -> None:
    search = args.search
    problems = {
        "--substeps must be at least 1": args.substeps < 1,
        "--samples must be at least 1": search.samples < 1,
        "--frames must be at least 1": search.frames < 1,
        "--rounds must be at least 1": search.rounds < 1,
        "--at-once must be at least 1": args.at_once < 1,
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


def _plan_clips(
    clips: "list[Clip]", plan: "Planning", humanoid: "Humanoid", bars: "Progress"
) -> "list[tuple[Clip, str]]":
    """Return clips with a plan each, if one tracks it to the end, and a line to print of each."""
    from jaxrl.motion import library
    from jaxrl.motion.clip import FPS

    started = time.monotonic()
    title = clips[0].name if len(clips) == 1 else f"{len(clips)} clips"
    bar = bars.add_task(title.replace("[", r"\["), total=max(len(clip.qpos) for clip in clips) - 1)
    captured = [library.build([clip], humanoid.model, FPS).captured_motion for clip in clips]
    plans = plan(captured, lambda: bars.advance(bar))
    bars.remove_task(bar)
    seconds = (time.monotonic() - started) / len(clips)
    return [
        _checked(clip, found, humanoid, seconds) for clip, found in zip(clips, plans, strict=True)
    ]


def _checked(
    clip: "Clip", plan: "Plan | None", humanoid: "Humanoid", seconds: float
) -> "tuple[Clip, str]":
    """Return a clip with its plan, if that tracks it to the end, and a line to print."""
    import numpy as np

    from jaxrl.motion import library
    from jaxrl.motion.clip import FPS
    from jaxrl.motion.tracking_metrics import EVALUATION_LIMIT

    planned = clip._replace(plan=plan)
    built = library.build([planned], humanoid.model, FPS)
    offset = np.asarray(built.reference.position - built.captured_motion.position)
    distance = np.linalg.norm(offset, axis=-1).mean(-1)
    line = f"{clip.name:<32}{len(distance):>7}"
    if plan is None or not distance.max() < EVALUATION_LIMIT:
        return clip, f"{line}  no plan found: try --samples 1000, or another --seed"
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
