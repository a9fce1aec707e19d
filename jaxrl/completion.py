"""Completion in the shell: `eval "$(jaxrl completion)"` in ~/.bashrc or ~/.zshrc."""

import sys
import typing
from typing import Any, Literal

from jaxrl.__main__ import COMMANDS
from jaxrl.config import TrainConfig, presets, settings, zoo
from jaxrl.errors import exit_status

# Paths are completed by the shell where we offer nothing.
SCRIPT = """\
if [ -n "$ZSH_VERSION" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_jaxrl() {
  local IFS=$'\\n'
  COMPREPLY=($(jaxrl completion "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _jaxrl jaxrl
"""


def main(arguments: list[str] | None = None) -> int:
    """Print the script, or with the words typed so far what can follow."""
    words = sys.argv[1:] if arguments is None else arguments
    return exit_status(lambda: print("\n".join(candidates(words)) if words else SCRIPT))


def candidates(words: list[str]) -> list[str]:
    """Return what the last word can become, after those before it."""
    *before, last = words
    if not before:
        found = list(COMMANDS)
    elif before[0] == "zoo":
        found = {1: ["list", "watch"], 2: zoo.names()}.get(len(before), [])
    elif before[0] != "train":
        found = []
    elif choices := _choices(before[-1]):
        found = choices
    elif last.startswith("-"):
        found = [settings.flag(path) for path in settings.SETTINGS if path != "preset"]
    else:
        found = presets.names() if len(before) == 1 else []
    return [each for each in found if each.startswith(last)]


def _choices(flag: str) -> list[str]:
    """Return the values of a flag, if they are a few words."""
    hint: Any = TrainConfig
    for part in flag.removeprefix("--").replace("-", "_").split("."):
        hint = typing.get_type_hints(hint).get(part) if isinstance(hint, type) else None
        if hint is None:
            return []
    return list(typing.get_args(hint)) if typing.get_origin(hint) is Literal else []


if __name__ == "__main__":
    sys.exit(main())
