"""Evaluate: `python -m jaxrl.evaluate RUN --episodes 100` prints figures and writes JSON."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxrl.errors import UserError, exit_status


@dataclass(frozen=True)
class Command:
    """Measure the policy of a run over whole episodes."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    episodes: int = 100
    """Number of episodes."""
    policy: Literal["best", "final"] = "best"
    """Which policy of the run."""
    stochastic: bool | None = None
    """Sample actions, or take the most likely ones; as the run's evaluation when not given."""
    seed: int = 0
    """Seed of the start states."""
    out: Path | None = None
    """JSON file; RUN/evaluation-<policy>.json when not given."""
    env: str | None = None
    """Needed only for your own environment: the module:Class that may be imported."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    command = tyro.cli(Command, args=arguments, prog="python -m jaxrl.evaluate")
    return exit_status(lambda: _evaluate(command))


def _evaluate(command: Command) -> None:
    if command.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {command.episodes}.")
    from jaxrl.runtime import evaluation, files, folder, policies, program

    config = folder.read_config(command.run, command.env)
    program.use_compilation_cache()
    file = policies.find(command.run, command.policy)
    sampled = config.eval.samples(command.stochastic)
    result = policies.run_episodes(
        policies.load_policy(file),
        config,
        episodes=command.episodes,
        seed=command.seed,
        deterministic=not sampled,
    )
    summary = evaluation.summarize(result)
    for name, value in summary.items():
        print(f"{name.removeprefix('eval/'):<16} {value:>12,.3f}")
    report = {
        "policy": file.name,
        "env": config.env,
        "episodes": command.episodes,
        "seed": command.seed,
        "deterministic": not sampled,
        **{name.removeprefix("eval/"): value for name, value in summary.items()},
        "returns": [float(x) for x in result.returns],
        "lengths": [int(x) for x in result.lengths],
    }
    out = command.out or command.run / f"evaluation-{command.policy}.json"
    files.write_text(out, json.dumps(report, indent=2))
    print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main())
