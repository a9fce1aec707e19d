"""Pytrees by name, and their shapes as JSON."""

from typing import Any

import jax
import numpy as np

from jaxrl.types import PyTree


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a tree, in order, by their paths: "actor/Dense_0/kernel"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def describe_shapes(tree: PyTree) -> Any:
    """Return shapes as JSON: dicts and lists stay, leaves become {"shape", "dtype"}."""
    return jax.tree.map(lambda s: {"shape": list(s.shape), "dtype": str(s.dtype)}, tree)


def parse_shapes(described: Any) -> PyTree:
    """Return the tree of jax.ShapeDtypeStruct that `describe_shapes` described.

    Raises:
      TypeError: it was not written by `describe_shapes`.
    """
    if isinstance(described, list):
        return [parse_shapes(part) for part in described]
    if not isinstance(described, dict):
        raise TypeError(f"a part is {described!r:.40}, not an object or a list")
    is_leaf = described.keys() == {"shape", "dtype"}
    if not is_leaf or isinstance(described["dtype"], dict):
        return {name: parse_shapes(part) for name, part in described.items()}
    shape, dtype = described["shape"], described["dtype"]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise TypeError(f"a shape is {shape!r:.40}, not a list of sizes")
    if not isinstance(dtype, str):
        raise TypeError(f"a dtype is {dtype!r:.40}, not a name")
    return jax.ShapeDtypeStruct(tuple(shape), np.dtype(dtype))
