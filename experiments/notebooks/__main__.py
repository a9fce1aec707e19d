"""Run notebooks from top to bottom, in place: `python -m experiments.notebooks [NAME ...]`."""

import argparse
import sys
from pathlib import Path

from jaxrl.errors import UserError, exit_status, install, nearest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="all if not given")
    command = parser.parse_args(arguments)
    return exit_status(lambda: _refresh(command.names))


def _refresh(names: list[str]) -> None:
    known = sorted(path.stem for path in HERE.glob("*.ipynb"))
    for name in names:
        if name not in known:
            raise UserError(f"Unknown notebook '{name}'.{nearest(name, known)} Known: {known}.")
    for name in names or known:
        print(name, flush=True)
        path = HERE / f"{name}.ipynb"
        path.write_text(executed(path), encoding="utf-8")


def executed(path: Path) -> str:
    """Return the notebook with the outputs of a new run; an error in a cell is raised."""
    try:
        import nbformat
        from nbclient import NotebookClient
    except ImportError as error:
        raise UserError(f"Notebooks need: {install('notebook')}") from error
    notebook = nbformat.read(path, as_version=4)
    settings = {"resources": {"metadata": {"path": str(ROOT)}}, "timeout": 600}
    # Recorded times of cells would change every file in every run.
    NotebookClient(notebook, record_timing=False, **settings).execute()
    return nbformat.writes(notebook) + "\n"


if __name__ == "__main__":
    sys.exit(main())
