"""The help of `jaxrl train`: the settings that a run reads, or all of them."""

import dataclasses
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from jaxrl.config import settings
from jaxrl.config.metadata import flag
from jaxrl.config.schema import TrainConfig
from jaxrl.config.settings import SECTIONS, SETTINGS

_INDENT = 34  # columns for flags
_WIDEST = 110  # of lines of prose


def text(config: TrainConfig, options: type, *, everything: bool = False) -> str:
    """Return the help for a configuration.

    Args:
      config: its values are shown; what it does not read is left out.
      options: dataclass of what can be given besides settings.
      everything: show all settings.
    """
    groups = [("options", "", [_option(options, f) for f in _own(options)])]
    hidden = 0
    for name, about in [("run", ""), *((name, each.help) for name, each in SECTIONS.items())]:
        paths = list(_paths(name))
        shown = [path for path in paths if everything or settings.reads(config, path)]
        hidden += len(paths) - len(shown)
        lines = [_setting(config, path, everything) for path in shown]
        groups.append((name, about, lines))
    parts = [
        "\n".join([f"{name}: {about}" if about else name, *lines])
        for name, about, lines in groups
        if lines
    ]
    if hidden:
        parts.append(_wrapped(f"{hidden} settings are not read by this run: --help-all.", ""))
    return "\n\n".join(parts)


def _paths(section: str) -> Iterator[str]:
    """Yield the settings of a section, or with "run" those outside of all."""
    for path in SETTINGS:
        first, _, inner = path.partition(".")
        if path != "preset" and (first == section if inner else section == "run"):
            yield path


def _setting(config: TrainConfig, path: str, everything: bool) -> str:
    """Return a setting's lines; what it needs is named where that may be missing."""
    about = SETTINGS[path].full_help if everything else SETTINGS[path].short_help
    words = settings.choices(path)
    kind = f"{{{','.join(words)}}}" if words else _kind(settings.hint(path))
    return _line(flag(path), kind, settings.get(config, path), about)


def _own(options: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(options) if "help" in field.metadata]


def _option(options: type, field: dataclasses.Field) -> str:
    kind = _kind(typing.get_type_hints(options)[field.name])
    return _line(flag(field.name), kind, field.default, field.metadata["help"])


def _line(name: str, kind: str, value: Any, about: str) -> str:
    """Return a flag with its kind, what it is for, and its value."""
    left = f"  {name} {kind}".rstrip()
    body = _wrapped(f"{about} [{typed(value)}]" if typed(value) else about, " " * _INDENT)
    if len(left) < _INDENT - 1:
        return left + body[len(left) :]
    return f"{left}\n{body}"


def typed(value: Any) -> str:
    """Return a value as it is typed; of an empty tuple that is nothing."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _wrapped(text: str, indent: str) -> str:
    width = max(min(shutil.get_terminal_size((100, 24)).columns - 1, _WIDEST), _INDENT + 30)
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _kind(hint: Any) -> str:
    """Return what follows a flag: INT, {a,b}, INT|all; nothing for a switch."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = [each for each in typing.get_args(hint) if each is not type(None)]
        return "|".join(
            _kind(kind).strip("{}") if len(kinds) > 1 else _kind(kind) for kind in kinds
        )
    if typing.get_origin(hint) is Literal:
        return "{" + ",".join(typing.get_args(hint)) + "}"
    if typing.get_origin(hint) is tuple:
        inner = [each for each in typing.get_args(hint) if each is not ...]
        return " ".join(map(_kind, inner)) + ("" if len(inner) > 1 else " ...")
    names = {bool: "", int: "INT", float: "FLOAT", Path: "PATH"}
    return names.get(hint, "NAME")
