"""Can every field hold its value, and every counter its count? Part of `config_checks`."""

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from jaxrl.config import TrainConfig, env_names

INT32_MAX = 2**31 - 1  # arrays are indexed, and iterations counted, by int32
INT64_MAX = 2**63 - 1  # environment steps are Python integers; log files hold them as int64
FLOAT32_MAX = (2 - 2**-23) * 2.0**127

# Integers with another limit than int32's.
_LIMITS = {"seed": 2**32 - 1, "total_steps": INT64_MAX}
_SHOWN = 60  # characters of a value in a message
_KINDS = {int: "an integer", float: "a number", bool: "True or False", str: "a string"}


def value_problems(config: TrainConfig) -> list[tuple[str, str]]:
    """Return (dotted path, problem) for every value its field cannot hold.

    Args:
      config: any settings, also those that a program or a file made without the command line.
    """
    if not isinstance(config, TrainConfig):
        return [("config", f"must be a TrainConfig, not {shown(config)}")]
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
                yield path, f"must be a {hint.__name__}, not {shown(value)}"
        elif problem := _value_problem(path, hint, value):
            yield path, f"{problem}, not {shown(value)}"


def _value_problem(path: str, hint: Any, value: Any) -> str | None:
    """Return why a field cannot hold a value; None if it can."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else _value_problem(path, options[0], value)
    if typing.get_origin(hint) is Literal:
        known = typing.get_args(hint)
        held = isinstance(value, str) and value in known
        return None if held else f"must be one of {', '.join(known)}"
    if typing.get_origin(hint) is tuple:
        return _tuple_problem(path, typing.get_args(hint), value)
    if hint is Path:
        return None if isinstance(value, str | os.PathLike) else "must be a path"
    if hint is float and type(value) is int:
        return _float_problem(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        return f"must be {_KINDS[hint]}"
    if hint is int:
        most = _LIMITS.get(path, INT32_MAX)
        return None if -most - 1 <= value <= most else f"must be at most {most:,}"
    return _float_problem(value) if hint is float else None


def _tuple_problem(path: str, kinds: tuple, value: Any) -> str | None:
    size = None if kinds[-1] is ... else len(kinds)
    if not isinstance(value, tuple) or size not in (None, len(value)):
        return f"must be a tuple{f' of {size}' if size else ''}"
    found = (_value_problem(path, kinds[0], each) for each in value)
    return next((problem for problem in found if problem), None)


def _float_problem(value: float) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    return None if abs(value) <= FLOAT32_MAX else f"must be at most {FLOAT32_MAX:.2g}"


def shown(value: Any) -> str:
    """Write a value in a message: short, and never so long that Python refuses to write it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"[:_SHOWN]
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, int | float):
        return str(value)
    try:
        return repr(value)[:_SHOWN]
    except Exception:
        return f"a {type(value).__name__}"


def count_problems(config: TrainConfig) -> list[str]:
    """Return every count of a run that its counter cannot hold, with the flags to lower.

    Each setting must be in its own range already.
    """
    learning, total = config.learning, config.total_iterations
    section = "ppo" if config.algo == "ppo" else "offpolicy"
    rollout = f"--num-envs × --{section}.rollout-length"
    end = "--epochs × --cycles × --iterations" if config.total_steps is None else "--total-steps"
    rows = config.num_envs * env_names.AGENTS.get(config.env, 1)
    off_policy = config.algo != "ppo"
    counts = [
        (rollout, "steps in a rollout", rows * learning.rollout_length, INT32_MAX),
        (f"{rollout} × --task.action-repeat", "environment steps in an iteration")
        + (config.steps_per_iteration, INT32_MAX),
        (end, "iterations", total, INT32_MAX),
        (end, "environment steps", total * config.steps_per_iteration, INT64_MAX),
        ("--ppo.update-epochs × --ppo.num-minibatches", "gradient steps in an iteration")
        + (config.ppo.updates, INT32_MAX),
        ("--train-batches × --batch-size", "transitions in an iteration")
        + (off_policy * learning.updates * config.offpolicy.batch_size, INT32_MAX),
        (f"{end}, --train-batches", "gradient steps")
        + (off_policy * total * learning.updates, INT32_MAX),
        (f"{end}, --num-envs", "steps of each environment")
        + (off_policy * total * learning.rollout_length, INT32_MAX),
    ]
    return [
        f"{flags}: {count:,} {what} are more than the {most:,} that can be counted."
        for flags, what, count, most in counts
        if count > most
    ]
