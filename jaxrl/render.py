"""Render: `python -m jaxrl.render RUN --out episode.html` draws episodes of a policy."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.config import zoo
from jaxrl.errors import UserError, check_episodes, exit_status
from jaxrl.loggers import run_dir
from jaxrl.rendering import SUFFIXES
from jaxrl.utils import command_line, progress, signals

_MIN_FPS = 0.01  # a GIF cannot hold a frame for much longer


@dataclass(frozen=True)
class RenderArgs:
    """Render episodes of the policy of a run: an interactive 3-D page, a video, or an image."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or zoo:NAME."""
    out: Path | None = None
    """File to write, .html, .gif, .mp4 or .png; RUN/videos/<policy>.gif by default."""
    episodes: int | None = None
    """Number of episodes; 1 by default, 32 with --steer."""
    steer: bool = False
    """On a page: steer a robot by the arrow keys, through the motion that the episodes recorded."""
    failures: bool = False
    """Of 100 episodes (or all motion clips) show those that failed, or had the lowest return."""
    clip: str | None = None
    """Name of the motion clip to show, of a run that follows clips."""
    policy: str = "best"
    """Which policy of the run: best, final, or the step of a checkpoint."""
    stochastic: bool | None = None
    """Sample actions, or take the most likely ones; by default as in the run's evaluation."""
    seed: int = 0
    """Seed of the episodes."""
    fps: float | None = None
    """Frames per second; by default about 25, or 10 if steps have no duration."""
    seconds: float | None = None
    """Cut each episode after this time."""
    gl: bool = False
    """Draw with MuJoCo's renderer, which needs a graphics library."""
    follow: bool = False
    """Serve a page with the newest policy of a run that is training, and draw it again as it
    learns; on this machine only."""
    port: int = 8000
    """Port of that page; 0 chooses a free one."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""
    randomize: Annotated[str | None, tyro.conf.arg(name="task.randomize")] = None
    """Needed only if the run has it: the module:function that may be imported."""
    network: Annotated[str | None, tyro.conf.arg(name="network.module")] = None
    """Needed only for networks of your own: the module:build that may be imported."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _render(command_line.parse(RenderArgs, arguments, "render")))


def _check(args: RenderArgs, out: Path) -> None:
    if out.suffix not in SUFFIXES:
        raise UserError(f"--out '{out}': the file must end in {', '.join(SUFFIXES)}.")
    for name, value in (("fps", args.fps), ("seconds", args.seconds)):
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name} must be greater than 0, not {value}.")
    if args.fps is not None and args.fps < _MIN_FPS:
        raise UserError(f"--fps must be at least {_MIN_FPS}, not {args.fps}.")
    check_episodes(_num_episodes(args), args.seed)
    if args.steer and (args.failures or args.follow):
        raise UserError(
            "--steer shows the motion of all episodes: leave out --failures and --follow."
        )
    if args.steer and out.suffix != ".html":
        raise UserError(f"--steer makes a page: use --out {out.with_suffix('.html')}.")
    if args.failures and args.clip:
        raise UserError("--failures searches all clips: leave out --clip, or --failures.")
    if args.follow and (args.out or args.policy != "best"):
        raise UserError("--follow shows the newest policy on a page: leave out --out and --policy.")
    if args.follow and zoo.is_name(args.run):
        raise UserError(f"--follow shows a run that is training, not {args.run}: leave it out.")
    if not 0 <= args.port < 2**16:
        raise UserError(f"--port must be from 0 to 65535, not {args.port}.")


def _num_episodes(args: RenderArgs) -> int:
    return (32 if args.steer else 1) if args.episodes is None else args.episodes


def _render(args: RenderArgs) -> None:
    out = args.out or zoo.output_folder(args.run) / "videos" / f"{args.policy}.gif"
    _check(args, out)
    config = run_dir.read_config(zoo.resolve(args.run), args.env, args.randomize, args.network)
    # JAX is imported only now: help and errors about arguments never wait for it.
    with signals.listening(at_once="starting"):
        from jaxrl.rendering import live
        from jaxrl.rendering.run import render_run

    def render(policy: str, file: Path) -> None:
        render_run(
            zoo.resolve(args.run),
            config,
            file,
            policy=policy,
            number=_num_episodes(args),
            seed=args.seed,
            deterministic=None if args.stochastic is None else not args.stochastic,
            failures=args.failures,
            clip=args.clip,
            fps=args.fps,
            seconds=args.seconds,
            gl=args.gl,
            steer=args.steer,
            stage=progress.stage,
        )

    if args.follow:
        live.follow(args.run, render, args.port)
    else:
        render(args.policy, out)
        print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main())
