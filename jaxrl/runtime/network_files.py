"""Networks as files: one npz with the weights, the normaliser, and how to build the network.

No code and no pickle: the file names layers and numbers, this module knows how to read them.
"""

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import config_json, files
from jaxrl.config import NetworkConfig
from jaxrl.errors import UserError
from jaxrl.types import ActionSpec, EnvSpec, PyTree

FORMAT = 1
_HEADER = "policy.json"


class Stored(NamedTuple):
    """What a file holds."""

    spec: EnvSpec
    config: NetworkConfig
    arrays: dict[str, np.ndarray]
    info: dict[str, Any]


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a tree, in order, by names with slashes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _describe_obs(obs: PyTree) -> Any:
    if isinstance(obs, dict):
        return {name: _describe_obs(part) for name, part in obs.items()}
    return {"shape": list(obs.shape), "dtype": str(obs.dtype)}


def _obs_from(description: Any) -> PyTree:
    if set(description) == {"shape", "dtype"}:
        shape = tuple(int(n) for n in description["shape"])
        return jax.ShapeDtypeStruct(shape, np.dtype(description["dtype"]))
    return {name: _obs_from(part) for name, part in description.items()}


def write(
    path: Path, params: PyTree, spec: EnvSpec, network: NetworkConfig, info: dict[str, Any]
) -> None:
    """Write networks; the file appears whole or not at all."""
    header = {
        "format": FORMAT,
        "obs": _describe_obs(spec.obs),
        "action": {"size": spec.action.size, "discrete": spec.action.discrete},
        "tokens": list(spec.tokens),
        "network": dataclasses.asdict(network),
        "info": info,
    }
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(params).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **arrays)


def read(file: Path) -> Stored:
    """Read networks back; what is damaged, foreign or non-finite is named."""
    header, arrays = _read(file)
    refuse_nonfinite(arrays, f"'{file}'")
    try:
        tokens = tuple(int(n) for n in header.get("tokens", ()))
        spec = EnvSpec(_obs_from(header["obs"]), ActionSpec(**header["action"]), tokens)
        config = config_json.read(NetworkConfig, header["network"], str(file))
        return Stored(spec, config, arrays, header["info"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{file}' is not a policy this version can read: {error!r}") from error


def _read(file: Path) -> tuple[dict, dict[str, np.ndarray]]:
    try:
        with np.load(file, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        header = json.loads(str(arrays.pop(_HEADER)))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"'{file}' is damaged or not a file of jaxrl's: {error}") from error
    if header.get("format") != FORMAT:
        raise UserError(f"'{file}' has format {header.get('format')}, this version reads {FORMAT}.")
    return header, arrays


def refuse_nonfinite(arrays: dict[str, np.ndarray], where: str) -> None:
    """Raise for a network that cannot act: one NaN in its weights is NaN in every action."""
    for name, values in arrays.items():
        if np.issubdtype(values.dtype, np.inexact) and not np.isfinite(values).all():
            bad = values.size - int(np.isfinite(values).sum())
            raise UserError(
                f"{where} cannot be used: {bad:,} of {values.size:,} values of the array {name} "
                "are not finite. Use another policy or an earlier checkpoint."
            )


def fill(target: PyTree, arrays: dict[str, np.ndarray], file: Path) -> PyTree:
    """Put named arrays into the place of a tree of shapes."""
    wanted = named_leaves(target)
    for name, leaf in wanted.items():
        if name not in arrays or arrays[name].shape != leaf.shape:
            have = arrays[name].shape if name in arrays else "nothing"
            raise UserError(f"'{file}': leaf {name} is {have}, the network needs {leaf.shape}.")
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(target), leaves)
