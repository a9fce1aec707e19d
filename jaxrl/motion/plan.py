"""Plan ways through motions: `python -m jaxrl.motion.plan CLIPS OUT` writes one .npz each.

CLIPS is a file that `jaxrl.motion` loads, or a folder of them. Each is written to the folder OUT
with a way through it that obeys physics, which training then follows (`--motion.clips OUT`). Clips
that OUT already has are left alone, so a command that was stopped can be given again.
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

from jaxrl.errors import UserError, exit_status
from jaxrl.motion import formats, library, skeleton
from jaxrl.motion.clip import Clip, Plan, resample
from jaxrl.motion.figure import Figure
from jaxrl.motion.formats import named
from jaxrl.motion.planning import Planner, Search

_FPS = 30.0  # as environments move
_FOLLOWED = 0.5  # metres: a mean distance that is success, as in evaluations


@dataclass(frozen=True)
class Command:
    """Find ways through motions that a simulated humanoid can really go."""

    clips: Annotated[Path, tyro.conf.Positional]
    """Motion file, or a folder of them."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write to; made when it is not there."""
    model: str | None = None
    """MuJoCo model (.xml) that moves; our humanoid when not given."""
    substeps: int = 3
    """Steps of physics for each frame, as --motion.substeps of the training."""
    loop_seconds: float = 0.0
    """Clips that loop are repeated until they last at least this long."""
    search: Annotated[Search, tyro.conf.arg(name="")] = field(default_factory=Search)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    command = tyro.cli(Command, args=arguments, prog="python -m jaxrl.motion.plan")
    return exit_status(lambda: _plan(command))


def _plan(command: Command) -> None:
    _check(command)
    model = skeleton.load_model(command.model)
    found = library.read(str(command.clips), model, command.loop_seconds)
    command.out.mkdir(parents=True, exist_ok=True)
    planner = Planner(Figure(model, _FPS, command.substeps), command.search)
    console = Console()
    console.print(f"{'clip':<32}{'frames':>7}{'MPJPE':>9}{'farthest':>10}{'seconds':>9}")
    with Progress(console=console, transient=True) as bars:
        for clip in found:
            path = command.out / f"{clip.name}.npz"
            if path.exists():
                console.print(f"{clip.name:<32} is there already: left alone", highlight=False)
                continue
            began = time.monotonic()
            # What is followed does not loop: a plan ends where it ends.
            clip = resample(clip, _FPS, model)._replace(loops=False, plan=None)
            bar = bars.add_task(clip.name, total=len(clip.qpos) - 1)
            shown = jax.tree.map(lambda x: x[0], library.build([clip], model, _FPS).captured)
            plan = planner.plan(shown, lambda bar=bar: bars.advance(bar))
            bars.remove_task(bar)
            named.write(path, clip._replace(plan=plan), planner.figure.skeleton)
            console.print(_line(clip, plan, planner, time.monotonic() - began), highlight=False)
    print(f"\ntrain            python -m jaxrl.train imitate --motion.clips {command.out}")


def _check(command: Command) -> None:
    look = command.search
    counts = {"--substeps": command.substeps, "--samples": look.samples}
    counts |= {"--frames": look.frames, "--rounds": look.rounds}
    for flag, value in counts.items():
        if value < 1:
            raise UserError(f"{flag} must be at least 1, not {value}.")
    for flag, value in {"--reach": look.reach, "--spread": look.spread}.items():
        if not (np.isfinite(value) and value > 0):
            raise UserError(f"{flag} must be greater than 0, not {value}.")
    sources = {file.parent.resolve() for file in formats.files(command.clips)}
    if command.out.resolve() in sources:
        raise UserError(f"'{command.out}': name another folder than that of the clips.")
    if command.out.exists() and not command.out.is_dir():
        raise UserError(f"'{command.out}' is a file; name a folder to write to.")


def _line(clip: Clip, plan: Plan, planner: Planner, seconds: float) -> str:
    """Return how well a plan follows its clip."""
    built = library.build([clip._replace(plan=plan)], planner.model, _FPS)
    apart = np.asarray(built.reference.position - built.captured.position)[0]
    mean = np.linalg.norm(apart, axis=-1).mean(-1)
    lost = "" if mean.max() < _FOLLOWED else "  lost it: try --samples 1000 or another --seed"
    return (
        f"{clip.name:<32}{len(mean):>7}{1e3 * mean.mean():>6.0f} mm{mean.max():>8.2f} m"
        f"{seconds:>9.0f}{lost}"
    )


if __name__ == "__main__":
    sys.exit(main())
