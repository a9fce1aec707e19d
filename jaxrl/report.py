"""Report: `python -m jaxrl.report RUN [RUN...]` writes a page about one or more runs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.errors import UserError, exit_status
from jaxrl.reports import load_runs, pages
from jaxrl.utils import command_line


@dataclass(frozen=True)
class ReportArgs:
    """Write an HTML page about one run, or a comparison of several; it needs no network."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders that hold runs, as the seeds of one."""
    out: Path | None = None
    """File to write; RUN/report.html for one folder, comparison.html for several."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _report(command_line.parse(ReportArgs, arguments, "report")))


def _report(args: ReportArgs) -> None:
    if not args.runs:
        raise UserError(f"Name at least one run folder: {command_line.prog('report')} RUN")
    alone = len(args.runs) == 1
    out = args.out or (args.runs[0] / pages.NAME if alone else Path("comparison.html"))
    for remark in pages.write(load_runs.find(args.runs), out):
        print(remark, file=sys.stderr)
    print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main())
