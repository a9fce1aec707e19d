"""Render: `python -m jaxrl.render RUN --out episode.gif` shows what a policy does."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxrl.errors import UserError, exit_status


@dataclass(frozen=True)
class Command:
    """Play one episode with the policy of a run, as a GIF (or one picture of it, a PNG)."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    out: Path | None = None
    """File to write; RUN/videos/<policy>.gif when not given."""
    policy: Literal["best", "final"] = "best"
    """Which policy of the run."""
    stochastic: bool | None = None
    """Sample actions, or take the most likely ones; as the run's evaluation when not given."""
    seed: int = 0
    """Seed of the episode."""
    fps: float = 10.0
    """Pictures per second."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    command = tyro.cli(Command, args=arguments, prog="python -m jaxrl.render")
    return exit_status(lambda: _render(command))


def _render(command: Command) -> None:
    out = command.out or command.run / "videos" / f"{command.policy}.gif"
    if out.suffix not in (".gif", ".png"):
        raise UserError(f"--out '{out}': the file must end in .gif or .png.")
    if not command.fps > 0:
        raise UserError(f"--fps must be greater than 0, not {command.fps}.")
    from jaxrl.runtime import folder, pictures, policies, program

    config = folder.read_config(command.run, command.env)
    program.use_compilation_cache()
    policy = policies.load_policy(policies.find(command.run, command.policy))
    sampled = config.eval.samples(command.stochastic)
    drawn = pictures.frames(policy, config, command.seed, deterministic=not sampled)
    pictures.save(drawn, out, command.fps)
    print(f"{len(drawn) - 1} steps written to {out}")


if __name__ == "__main__":
    sys.exit(main())
