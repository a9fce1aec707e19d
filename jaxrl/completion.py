"""Completion in the shell: `eval "$(jaxrl completion)"` in ~/.bashrc or ~/.zshrc.

A command's flags are the fields of its dataclass of arguments, so that they are declared once. Of
training, the flags are those that the run reads, as in `jaxrl train PRESET --help`.
"""

import importlib
import sys
import typing
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

from jaxrl import train
from jaxrl.__main__ import COMMANDS
from jaxrl.config import (
    TrainConfig,
    algorithm_names,
    distributed,
    env_names,
    overrides,
    presets,
    settings,
    zoo,
)
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line

# Paths are completed by the shell where we offer nothing.
SCRIPT = """\
if [ -n "$ZSH_VERSION" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_jaxrl() {
  local IFS=$'\\n'
  COMPREPLY=($(jaxrl completion --words "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _jaxrl jaxrl
"""
USAGE = """\
usage: jaxrl completion    (or python -m jaxrl.completion)

Print a script for bash and zsh that completes commands, presets, flags and their values. Add to
~/.bashrc or ~/.zshrc:

  eval "$(jaxrl completion)\""""

_BREAKS = (":", "=")  # where bash splits words


def main(arguments: list[str] | None = None) -> int:
    """Print the script, or with the words typed so far what can follow."""
    words = sys.argv[1:] if arguments is None else arguments
    return exit_status(lambda: print(_output(words)))


def _output(words: list[str]) -> str:
    if words[:1] == ["--words"]:
        return "\n".join(candidates(words[1:]))
    if words and words[0] in ("-h", "--help"):
        return USAGE
    if words and words[0] not in ("bash", "zsh"):
        raise UserError(f"The script is for bash and zsh, not {words[0]}.")
    return SCRIPT


def candidates(words: list[str]) -> list[str]:
    """Return what the last word can become, after those before it."""
    words, repeated = _joined(words or [""])
    *before, last = words
    if not before:
        found = _starting(last, COMMANDS)
    elif before[0] == "launch" and "--" in before:
        found = _of_command("train", before[before.index("--") + 1 :], last)
    elif before[0] in COMMANDS and before[0] != "completion":
        found = _of_command(before[0], before[1:], last)
    else:
        found = []
    return [word[repeated:] for word in found]


def _joined(words: list[str]) -> tuple[list[str], int]:
    """Join what bash has split; also return how much of the last word it will not replace."""
    joined = [""]
    for word in words:
        if joined[-1] and (word in _BREAKS or joined[-1].endswith(_BREAKS)):
            joined[-1] += word
        else:
            joined.append(word)
    replaced = "" if words[-1] in _BREAKS else words[-1]
    return joined[1:], len(joined[-1]) - len(replaced)


def _starting(last: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(last)]


def _of_command(command: str, before: list[str], last: str) -> list[str]:
    """Return what can follow the words after a command's name."""
    flag, equals, value = last.partition("=")
    if flag.startswith("--") and equals:
        return [f"{flag}={word}" for word in _starting(value, _values(command, flag))]
    if before and (values := _values(command, before[-1])):
        return _starting(last, values)
    if last.startswith("-"):
        # Flags that the run would not read are offered where no other fits.
        return _starting(last, _flags(command, before)) or _starting(last, _flags(command, None))
    return _starting(last, _positional(command, before, last))


def _values(command: str, flag: str) -> tuple[str, ...]:
    """Return the values of a flag, if they are a few words."""
    name = flag.removeprefix("--")
    path = name.replace("-", "_")
    if command == "train" and path in settings.SETTINGS:
        names = {"algo": tuple(algorithm_names.ALGORITHMS), "backend": env_names.BACKENDS}
        names["env"] = (*env_names.CLASSIC, *env_names.BRAX, *env_names.MOTION, *env_names.ARM)
        return names.get(path) or settings.choices(path)
    if name == "policy":
        return "best", "final"
    hints = [each.hint for each in command_line.flags(_arguments(command)) if each.name == name]
    if hints and typing.get_origin(hints[0]) is Literal:
        return typing.get_args(hints[0])
    return ("True", "False") if hints == [bool | None] else ()


def _flags(command: str, before: list[str] | None) -> Iterator[str]:
    """Yield the flags of a command: those of training after the words before, or all of them.

    Of a switch that is on, that is the flag that turns it off.
    """
    if command == "train" and before and any(word.startswith("--resume") for word in before):
        command = "resume"
    config = _config(before) if command == "train" and before is not None else None
    for each in command_line.flags(_arguments(command)):
        path, default = each.name.replace("-", "_"), each.default
        if config is not None and path in settings.SETTINGS:
            if not settings.reads(config, path):
                continue
            default = settings.get(config, path)
        if each.hint is not bool or default is not True or before is None:
            yield f"--{each.name}"
        if each.hint is bool and (default is True or before is None):
            section, dot, name = each.name.rpartition(".")
            yield f"--{section}{dot}no-{name}"
    if command == "train":
        yield from (*distributed.flags(), "--help-all")
    yield "--help"


def _config(before: list[str]) -> TrainConfig | None:
    """Return the preset with what chooses its other settings: environment, algorithm, ..."""
    try:
        config = presets.get(train.preset_name(before)[0])
        words = [part for word in before for part in word.split("=", 1)]
        for flag, value in pairwise(words):
            path = flag.removeprefix("--").replace("-", "_")
            if path == "env" or value in _values("train", flag):
                config = overrides.changed(config, {path: value})
    except UserError:
        return None
    return config


def _arguments(command: str) -> type:
    """Return the dataclass of a command's arguments, which is named after it."""
    module = importlib.import_module(COMMANDS.get(command, COMMANDS["train"])[0])
    return getattr(module, f"{command.rpartition('-')[2].capitalize()}Args")


def _positional(command: str, before: list[str], last: str) -> list[str]:
    """Return the words that can stand where neither flags nor values do."""
    if command == "train":
        return [] if before else presets.names()
    if command == "zoo":
        return {0: ["list", "watch"], 1: zoo.names()}.get(len(before), [])
    # Before anything is typed, the shell lists folders.
    takes_runs = command in ("evaluate", "render", "record", "export")
    return [zoo.PREFIX + name for name in zoo.names()] if takes_runs and last else []


if __name__ == "__main__":
    sys.exit(main())
