"""Functions of the user's own, named as module:function."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from jaxrl.errors import UserError, nearest

_REGISTERED: dict[str, Callable[..., Any]] = {}
_UNNAMED = "lambda"  # stands for what has no name; a keyword, so no module has an attribute of it
GIVE_AGAIN = (
    "its environment has no name, as it was given in Python as a lambda or partial. Give the same "
    "one again, as in jaxrl.resume(run, env=...). Commands take one that is defined with `def`."
)


def register(flag: str, function: Callable[..., Any]) -> str:
    """Make a function available by its name, module:function, and return that name.

    Args:
      flag: the setting that will name the function, for messages.
    """
    name = getattr(function, "__name__", "")
    if not callable(function) or not name.isidentifier():
        raise UserError(f"{flag}: {function!r} is no named function: define it with `def`.")
    path = f"{function.__module__}:{name}"
    _REGISTERED[path] = function
    return path


def is_unnamed(path: str) -> bool:
    """Tell whether a name stands for a lambda or partial, which only this process can call."""
    return path.partition(":")[2] == _UNNAMED


def _factory_name(given: Any) -> str:
    """Register a lambda or partial, which has no name of its own."""
    function = given.func if isinstance(given, functools.partial) else given
    path = f"{function.__module__}:{_UNNAMED}"
    _REGISTERED[path] = given
    return path


def function_name(flag: str, given: Any) -> str:
    """Return the name by which `load` finds what a user gave: a name or a function."""
    if isinstance(given, str):
        return given
    if not callable(given):
        raise UserError(f"{flag}: give a function, or its name as module:function, not {given!r}.")
    return register(flag, given)


def env_name(flag: str, given: Any) -> str:
    """Return the name by which `load` finds an environment: a name, a factory or an object."""
    if isinstance(given, functools.partial) or getattr(given, "__name__", "") == "<lambda>":
        return _factory_name(given)
    if isinstance(given, str) or callable(given):
        return function_name(flag, given)
    if not (hasattr(given, "reset") and hasattr(given, "step")):
        raise UserError(
            f"{flag}: give an environment's class, a function that makes it, an instance or its "
            f"name, not {given!r}."
        )
    kind = type(given)

    def same() -> Any:
        return given

    same.__module__, same.__name__ = kind.__module__, kind.__name__
    return register(flag, same)


def load(flag: str, path: str) -> Callable[..., Any]:
    """Return the function named by a flag: a registered one, or imported from its module."""
    if path in _REGISTERED:
        return _REGISTERED[path]
    if is_unnamed(path):
        raise UserError(f"{flag} {path}: {GIVE_AGAIN}")
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:  # ValueError: an empty name
        raise UserError(
            f"{flag}: cannot import '{module_name}' ({error}). Run from the folder that holds it, "
            "or put that folder on PYTHONPATH."
        ) from error
    if not hasattr(module, attribute):
        hint = nearest(attribute, vars(module))
        raise UserError(f"{flag}: module '{module_name}' has no '{attribute}'.{hint}")
    function = getattr(module, attribute)
    if not callable(function):
        raise UserError(
            f"{flag}: '{path}' is {type(function).__name__}, not a class or function: name one."
        )
    return function
