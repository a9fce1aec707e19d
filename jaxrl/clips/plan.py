"""Plan ways through motions: `python -m jaxrl.clips.plan CLIPS OUT` writes one .npz each.

CLIPS is a file that `jaxrl.motion` loads, or a folder of them. Each is written to the folder OUT
with a way through it that obeys physics, which training then follows (`--motion.clips OUT`); where
none was found, without. Clips that OUT already has a way for are left alone, so a command that was
stopped, or lost some clips, can be given again.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress

from jaxrl.config import MotionConfig
from jaxrl.errors import UserError, exit_status
from jaxrl.motion import formats, library, skeleton
from jaxrl.motion.clip import FPS, Clip, resample
from jaxrl.motion.formats import native
from jaxrl.motion.formats.npz_arrays import opened
from jaxrl.motion.humanoid import Humanoid
from jaxrl.motion.mppi import Planner, Search
from jaxrl.motion.tracking_metrics import EVALUATION_LIMIT


@dataclass(frozen=True)
class PlanArgs:
    """Find ways through motions that a simulated humanoid can really go."""

    clips: Annotated[Path, tyro.conf.Positional]
    """Motion file, or a folder of them."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write to; made when it is not there."""
    model: Path | None = None
    """MuJoCo model (.xml) that moves; our humanoid when not given."""
    substeps: int = MotionConfig.substeps
    """Steps of physics for each frame, as --motion.substeps of the training."""
    loop_seconds: float = 0.0
    """Clips that loop are repeated until they last at least this long."""
    search: Annotated[Search, tyro.conf.arg(name="")] = field(default_factory=Search)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    program = "python -m jaxrl.clips.plan"
    return exit_status(lambda: _plan(tyro.cli(PlanArgs, args=arguments, prog=program)))


def _plan(command: PlanArgs) -> None:
    _check(command)
    model = skeleton.load_model(str(command.model) if command.model else None)
    found = library.read(str(command.clips), model, command.loop_seconds)
    command.out.mkdir(parents=True, exist_ok=True)
    planned = _planned_before(command, [clip.name for clip in found])
    planner = Planner(Humanoid(model, FPS, command.substeps), command.search)
    print(f"{'clip':<32}{'frames':>7}{'MPJPE':>9}{'worst frame':>13}{'seconds':>9}")
    with Progress(console=Console(), transient=True) as bars:
        for clip in found:
            path = command.out / f"{clip.name}.npz"
            if path in planned:
                print(f"{clip.name:<32} has a plan: left alone")
                continue
            # What is followed does not loop: a plan ends where it ends.
            clip = resample(clip, FPS, model)._replace(loops=False, plan=None)
            clip, said = _planned(clip, planner, bars)
            native.write(path, clip, planner.figure.skeleton)
            print(said)
    print(f"\ntrain            {_training(command)}")


def _check(command: PlanArgs) -> None:
    look = command.search
    problems = {
        "--substeps must be at least 1": command.substeps < 1,
        "--samples must be at least 1": look.samples < 1,
        "--frames must be at least 1": look.frames < 1,
        "--rounds must be at least 1": look.rounds < 1,
        "--seed must not be negative": look.seed < 0,
        "--reach must be greater than 0": not 0 < look.reach < np.inf,
        "--spread must be greater than 0": not 0 < look.spread < np.inf,
        "--loop-seconds must not be negative": not 0 <= command.loop_seconds < np.inf,
    }
    for problem, is_there in problems.items():
        if is_there:
            raise UserError(f"{problem}.")
    files = formats.files(command.clips)
    if command.out.resolve() in {file.parent.resolve() for file in files}:
        raise UserError(f"'{command.out}': name another folder than that of the clips.")
    if command.out.exists() and not command.out.is_dir():
        raise UserError(f"'{command.out}' is a file; name a folder to write to.")


def _planned_before(command: PlanArgs, names: list[str]) -> set[Path]:
    """Return the files that have a plan already, all of which must be of the same physics."""
    paths = [command.out / f"{name}.npz" for name in names]
    planned = {path for path in paths if path.exists() and formats.any_planned(path)}
    for path in sorted(planned):
        with opened(path) as arrays:
            substeps = int(arrays.number(native.SUBSTEPS))
        if substeps != command.substeps:
            raise UserError(
                f"'{path}' was planned with --substeps {substeps}, not {command.substeps}: "
                "name another folder, or remove what is in this one."
            )
    return planned


def _planned(clip: Clip, planner: Planner, bars: Progress) -> tuple[Clip, str]:
    """Return a clip with a plan, if one follows it to the end, and what there is to say of it."""
    began = time.monotonic()
    bar = bars.add_task(clip.name.replace("[", r"\["), total=len(clip.qpos) - 1)
    shown = jax.tree.map(lambda x: x[0], library.build([clip], planner.model, FPS).captured)
    plan = planner.plan(shown, lambda: bars.advance(bar))
    bars.remove_task(bar)
    planned = clip._replace(plan=plan)
    built = library.build([planned], planner.model, FPS)
    apart = np.asarray(built.reference.position - built.captured.position)[0]
    apart = np.linalg.norm(apart, axis=-1).mean(-1)
    said = f"{clip.name:<32}{len(apart):>7}"
    if plan is None or not apart.max() < EVALUATION_LIMIT:
        return clip, f"{said}  lost, kept without a plan: try --samples 1000, or another --seed"
    seconds = time.monotonic() - began
    return planned, f"{said}{1e3 * apart.mean():>6.0f} mm{apart.max():>11.2f} m{seconds:>9.0f}"


def _training(command: PlanArgs) -> str:
    """Return the command that trains on what was planned."""
    flags = [f" --motion.model {command.model}"] if command.model else []
    flags += (
        [f" --motion.substeps {command.substeps}"]
        if command.substeps != MotionConfig.substeps
        else []
    )
    return f"python -m jaxrl.train imitate --motion.clips {command.out}{''.join(flags)}"


if __name__ == "__main__":
    sys.exit(main())
