"""Whether every field of a configuration can hold its value: types, and the limits of integers."""

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from jaxrl.config.schema import TrainConfig
from jaxrl.config.settings import SETTINGS

FLOAT32_MAX = (2 - 2**-23) * 2.0**127
_MAX_CHARS = 60  # of a value in a message
_KINDS = {int: "an integer", float: "a number", bool: "True or False", str: "a string"}


def type_problems(config: TrainConfig) -> list[tuple[str, str]]:
    """Return (dotted path, problem) for every value its field cannot hold.

    Args:
      config: any settings, also those that a program or a file made without the command line.
    """
    if not isinstance(config, TrainConfig):
        return [("config", f"must be a TrainConfig, not {format_value(config)}")]
    return list(_problems(TrainConfig, config, ""))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _problems(cls: type, part: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for name, hint in _hints(cls).items():
        path, value = prefix + name, getattr(part, name)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if isinstance(value, hint):
                yield from _problems(hint, value, f"{path}.")
            else:
                yield path, f"must be a {hint.__name__}, not {format_value(value)}"
        elif problem := _value_problem(path, hint, value):
            yield path, f"{problem}, not {format_value(value)}"


def _value_problem(path: str, hint: Any, value: Any) -> str | None:
    """Return why a field cannot hold a value; None if it can."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        found = [_value_problem(path, option, value) for option in options]
        return None if value is None or None in found else found[0]
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        is_choice = isinstance(value, str) and value in choices
        return None if is_choice else f"must be one of {', '.join(choices)}"
    if typing.get_origin(hint) is tuple:
        return _tuple_problem(path, typing.get_args(hint), value)
    if hint is Path:
        return None if isinstance(value, str | os.PathLike) else "must be a path"
    if hint is float and type(value) is int:
        return _float_problem(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        return f"must be {_KINDS[hint]}"
    if hint is int:
        limit = SETTINGS[path].limit
        return None if -limit - 1 <= value <= limit else f"must be at most {limit:,}"
    return _float_problem(value) if hint is float else None


def _tuple_problem(path: str, kinds: tuple, value: Any) -> str | None:
    size = None if kinds[-1] is ... else len(kinds)
    if not isinstance(value, tuple) or size not in (None, len(value)):
        return f"must be a tuple{f' of {size}' if size else ''}"
    problems = (_value_problem(path, kinds[0], each) for each in value)
    return next((problem for problem in problems if problem), None)


def _float_problem(value: float) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    return None if abs(value) <= FLOAT32_MAX else f"must be at most {FLOAT32_MAX:.2g}"


def format_value(value: Any) -> str:
    """Return a value for a message: short, also if Python refuses to print it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(format_value, value))})"[:_MAX_CHARS]
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, int | float):
        return str(value)
    try:
        return repr(value)[:_MAX_CHARS]
    except Exception:
        return f"a {type(value).__name__}"
