"""Configurations as plain JSON; reading is strict and runs no code."""

import dataclasses
import json
import types
import typing
import unicodedata
from pathlib import Path
from typing import Any, Literal, TypeGuard

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError

FORMAT = 1


def to_json(config: TrainConfig) -> str:
    """Return the configuration as readable JSON."""
    data = {"format": FORMAT} | dataclasses.asdict(config)
    return json.dumps(data, indent=2, default=str)  # paths are the only values JSON lacks


def from_json(text: str, where: str = "config.json") -> TrainConfig:
    """Read a configuration: unknown or mistyped fields are errors.

    A missing field has its default: files of an earlier version, which had fewer, can be read.
    """
    data = parse(text, where)
    version = data.pop("format", None) if isinstance(data, dict) else None
    if version != FORMAT or isinstance(version, bool):
        raise UserError(f"{where} was not written by this version of jaxrl (format {FORMAT}).")
    return read(TrainConfig, data, where, "")


def parse(text: str, where: str) -> Any:
    """Parse JSON; raise a UserError that names the file if it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise UserError(f"{where} is not valid JSON: {error}") from error


def read(cls: type, data: Any, where: str, prefix: str = "") -> Any:
    """Build dataclass `cls` from a dict."""
    if not isinstance(data, dict):
        raise UserError(f"{where}: '{prefix or 'top'}' must be an object.")
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise UserError(f"{where}: unknown field '{prefix}{unknown[0]}'.")
    values = {
        name: _value(hints[name], value, where, prefix + name) for name, value in data.items()
    }
    return cls(**values)


def _value(hint: Any, value: Any, where: str, path: str) -> Any:
    """Check one value against its type."""
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(option, type):
            return read(option, value, where, path + ".")
        if option is type(None) and value is None:
            return None
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if typing.get_origin(option) is tuple and isinstance(value, list):
            kind, *others = typing.get_args(option)
            if others == [...] or len(value) == 1 + len(others):
                return tuple(_value(kind, v, where, path) for v in value)
        if option is float and (type(value) is float or _is_integer(value)):
            return float(value)
        if option is Path and _is_text(value):
            return Path(value)
        if (
            (option is int and _is_integer(value))
            or (option is str and _is_text(value))
            or (option is bool and type(value) is bool)
        ):
            return value
    raise UserError(f"{where}: field '{path}' has the unusable value {value!r:.80}.")


def _is_integer(value: Any) -> TypeGuard[int]:
    """Tell whether a value is an integer of at most 64 bits."""
    return type(value) is int and -(2**63) <= value < 2**63


def _is_text(value: Any) -> TypeGuard[str]:
    """Tell whether a value is text that can be printed and written: no control characters."""
    return isinstance(value, str) and not any(
        unicodedata.category(letter) in ("Cc", "Cs") for letter in value
    )


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted paths."""
    flat = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
