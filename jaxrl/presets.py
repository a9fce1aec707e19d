"""Presets: `presets.get("ant", num_envs=4096)`; `python -m jaxrl.presets [WORD ...]` lists them."""

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from jaxrl.config import presets
from jaxrl.config.presets import get, names
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line

__all__ = ["get", "names"]


@dataclass(frozen=True)
class PresetsArgs:
    """List the presets: environment, physics, number of environments and steps."""

    words: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Show only presets with one of these words in their name; playground: MuJoCo Playground's."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: _list(command_line.parse(PresetsArgs, arguments, "presets")))


def _list(args: PresetsArgs) -> None:
    found = [name for name in names() if any(word in name for word in args.words)]
    if args.words and not found:
        raise UserError(f"No preset has {' or '.join(args.words)} in its name.")
    print(presets.table(found))
    if not args.words:
        number = len(presets.playground_names())
        print(f"\n{number} tasks of MuJoCo Playground: {command_line.prog('presets')} playground")


if __name__ == "__main__":
    sys.exit(main())
