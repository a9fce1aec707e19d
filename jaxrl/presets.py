"""Presets: `presets.get("ant", num_envs=4096)`; `python -m jaxrl.presets [WORD ...]` lists them."""

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from jaxrl.config import presets
from jaxrl.config.presets import get, names
from jaxrl.errors import UserError, exit_status

__all__ = ["get", "names"]


@dataclass(frozen=True)
class PresetsArgs:
    """List the presets: environment, physics, number of environments and steps."""

    words: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Show only presets with one of these words in their name."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    program = "python -m jaxrl.presets"
    return exit_status(lambda: _list(tyro.cli(PresetsArgs, args=arguments, prog=program)))


def _list(command: PresetsArgs) -> None:
    words = command.words or ("",)
    found = [name for name in names() if any(word in name for word in words)]
    if not found:
        raise UserError(f"No preset has {' or '.join(command.words)} in its name.")
    print(presets.table(found))


if __name__ == "__main__":
    sys.exit(main())
