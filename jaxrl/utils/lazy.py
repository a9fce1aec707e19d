"""Exports of a package that are imported on first use, because JAX and physics take seconds."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, modules: Mapping[str, str | None]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that imports `name` from its submodule `modules[name]`.

    Where that is None, the name is that of a submodule.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = modules[name]
        if module is None:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{module}"), name)

    return get
