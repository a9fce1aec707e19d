"""Exports of a package that are imported on first use, because JAX and physics take seconds."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that imports `name` from its submodule `modules[name]`."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get
