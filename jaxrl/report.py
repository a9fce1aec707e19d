"""Report: `python -m jaxrl.report RUN [RUN...]` writes a page about one or more runs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.errors import UserError, exit_status
from jaxrl.reports import load_runs, pages


@dataclass(frozen=True)
class ReportArgs:
    """Write an HTML page about one run, or a comparison of several; it needs no network."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders that hold runs, as the seeds of one."""
    out: Path | None = None
    """File to write; RUN/report.html for one folder, comparison.html for several."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    program = "python -m jaxrl.report"
    return exit_status(lambda: _report(tyro.cli(ReportArgs, args=arguments, prog=program)))


def _report(command: ReportArgs) -> None:
    if not command.runs:
        raise UserError("Name at least one run folder: python -m jaxrl.report RUN")
    alone = len(command.runs) == 1
    out = command.out or (command.runs[0] / pages.NAME if alone else Path("comparison.html"))
    for remark in pages.write(load_runs.find(command.runs), out):
        print(remark, file=sys.stderr)
    print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main())
