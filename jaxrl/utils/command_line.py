"""What a command is called, and its arguments, with errors in one line."""

import contextlib
import dataclasses
import io
import re
import sys
import typing
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import tyro

from jaxrl.errors import UserError, nearest

T = TypeVar("T")

_SCRIPT = {"studies.run": "study", "studies.search": "search"}  # others have their module's name
_KINDS = {"INT": ("an integer", int), "FLOAT": ("a number", float)}
# What tyro prints.
_VALUE = re.compile(r"Error parsing (\S+): (.*?)(?: Argument helptext: \S+ (.*?) \w|$)")
_CHOICE = re.compile(r"invalid choice '(.*?)' for argument '(.*?)'\. .*? \((.*?)\)")
_UNKNOWN = re.compile(r"Unrecognized options: (\S+?),? ")
_NO_VALUE = re.compile(r"Missing value for argument '(.*?)'")
_MISSING = re.compile(r"Missing from .*?: ([-\w]+)(?: [A-Z]+)? (.*?) \(required\)")


def prog(module: str) -> str:
    """Return how the user calls a module, as `train`: jaxrl train, or python -m jaxrl.train."""
    if Path(sys.argv[0]).name == "jaxrl":
        return f"jaxrl {_SCRIPT.get(module, module.replace('.', '-'))}"
    return f"python -m jaxrl.{module}"


class Flag(NamedTuple):
    """A flag of a command: its name without dashes, its type and its default."""

    name: str
    hint: Any
    default: Any


def flags(cls: type, prefix: str = "") -> list[Flag]:
    """Return the flags that a dataclass of arguments declares, those of nested ones included."""
    found, hints = [], typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint, extras = hints[field.name], []
        if typing.get_origin(hint) is Annotated:
            hint, *extras = typing.get_args(hint)
        if tyro.conf.Positional in extras or tyro.conf.Suppress in extras:
            continue
        renamed = [each.name for each in extras if getattr(each, "name", None) is not None]
        name = prefix + (renamed[0] if renamed else field.name.replace("_", "-"))
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += flags(hint, f"{name}." if name else "")
        else:
            found.append(Flag(name, hint, field.default))
    return found


def parse(
    cls: type[T],
    arguments: Sequence[str] | None,
    module: str,
    default: Any = None,
    unlisted: Collection[str] = (),
) -> T:
    """Parse the arguments of a command.

    Args:
      cls: dataclass of the arguments.
      arguments: the words; None: those of the process.
      module: the command, as `prog` takes it.
      default: values of what is not given.
      unlisted: choices that messages do not name.

    Raises:
      UserError: they cannot be parsed.
    """
    printed, program = io.StringIO(), prog(module)
    options = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(cls, args=arguments, prog=program, **options)
    except SystemExit as stopped:
        if not stopped.code:  # help
            raise
        known = [f"--{each.name}" for each in flags(cls)]
        text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", printed.getvalue()).split())
        problem = _problem(text, known, unlisted)
        if problem is None:
            print(printed.getvalue(), end="", file=sys.stderr)
            raise
        raise UserError(f"{problem} {program} --help describes the arguments.") from None


def _problem(text: str, known: list[str], unlisted: Collection[str]) -> str | None:
    """Return what tyro says of wrong arguments in our words; None if it says something else."""
    if found := _VALUE.search(text):
        flag, reason, metavar = found.groups()
        values = re.findall(r"'([^']*)'", reason.split(" Got errors:")[0])
        for name, (wanted, convert) in _KINDS.items():
            if name in (metavar or "") and (wrong := _unreadable(values, convert)):
                return f"{flag} must be {wanted}, not '{wrong}'."
    if found := _CHOICE.search(text):
        value, name, choices = found[1], found[2], re.findall(r"'(.*?)'", found[3])
        choices = [choice for choice in choices if choice not in unlisted]
        return f"{name}: unknown '{value}'.{nearest(value, choices)} Known: {', '.join(choices)}."
    if found := _UNKNOWN.search(text):
        kind = "Unknown flag" if found[1].startswith("-") else "Unexpected argument"
        return f"{kind} {found[1]}.{nearest(found[1], known, cutoff=0.7)}"
    if found := _NO_VALUE.search(text):
        is_flag = found[1].startswith("-")
        return f"{found[1]} needs a value." if is_flag else f"{found[1].upper()} is missing."
    if found := _MISSING.search(text):
        return f"{found[1]} is missing: {found[2]}"
    return None


def _unreadable(values: list[str], convert: Callable[[str], Any]) -> str:
    """Return the first value that cannot be converted, or an empty string."""
    for value in values:
        try:
            convert(value)
        except ValueError:
            return value
    return ""
