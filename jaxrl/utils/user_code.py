"""Functions of the user's own, named as module:function."""

import importlib
from collections.abc import Callable
from typing import Any

from jaxrl.errors import UserError, nearest

_REGISTERED: dict[str, Callable[..., Any]] = {}


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


def name_of(flag: str, given: Any) -> str:
    """Return the name by which `load` finds what a user gave: a name, a function or an object."""
    if isinstance(given, str):
        return given
    if callable(given):
        return register(flag, given)
    kind = type(given)

    def same() -> Any:
        return given

    same.__module__, same.__name__ = kind.__module__, kind.__name__
    return register(flag, same)


def load(flag: str, path: str) -> Callable[..., Any]:
    """Return the function named by a flag: a registered one, or imported from its module."""
    if path in _REGISTERED:
        return _REGISTERED[path]
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
        raise UserError(f"{flag}: '{path}' is no function.")
    return function
