"""Export: `python -m jaxrl.export RUN` writes a policy that runs without jaxrl.

The deterministic policy with its normaliser, as a program in JAX's export format, and as arrays
with a short Python file that needs only NumPy.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.config import zoo
from jaxrl.errors import exit_status
from jaxrl.utils import atomic_io, command_line


@dataclass(frozen=True)
class ExportArgs:
    """Write the policy of a run in formats that do not need jaxrl."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, a policy file, or zoo:NAME."""
    out: Path | None = None
    """Folder to write into; RUN/exported by default."""
    policy: str = "best"
    """Which policy of the run: best, final, or the step of a checkpoint."""
    network: Annotated[str | None, tyro.conf.arg(name="network.module")] = None
    """Needed only for networks of your own: the module:build that may be imported."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _export(command_line.parse(ExportArgs, arguments, "export")))


def _export(args: ExportArgs) -> None:
    from jaxrl.policies import export, load

    file = load.find(args.run, args.policy)
    if args.run.is_dir():
        atomic_io.check_folder(args.run)
    own = args.run.is_dir() or zoo.is_name(args.run)
    folder = zoo.output_folder(args.run) if own else file.parent
    for remark in export.write(file, args.out or folder / "exported", args.network):
        print(remark)


if __name__ == "__main__":
    sys.exit(main())
