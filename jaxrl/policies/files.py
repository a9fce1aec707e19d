"""Networks as files: one .npz with the weights, the normaliser, and the network's settings.

The file holds no code and no pickle.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import NetworkConfig, serialization
from jaxrl.errors import UserError, first_line
from jaxrl.types import ActionSpec, EnvSpec, PyTree
from jaxrl.utils import atomic_io, host_memory, npz, trees

FORMAT = 1
_HEADER = "policy.json"
_MAX_HEADER = 2**24  # bytes
_NUMERIC = "fiub"  # kinds of dtypes


class PolicyFile(NamedTuple):
    """The header of a file, and the headers of its arrays."""

    spec: EnvSpec
    config: NetworkConfig
    arrays: dict[str, npz.Header]
    info: dict[str, Any]


def write(
    path: Path, params: PyTree, spec: EnvSpec, network: NetworkConfig, info: dict[str, Any]
) -> None:
    """Write networks; the file appears complete or not at all."""
    header = {
        "format": FORMAT,
        "obs": trees.describe_shapes(spec.obs),
        "action": {"size": spec.action.size, "discrete": spec.action.discrete},
        "tokens": list(spec.tokens),
        "network": dataclasses.asdict(network),
        "info": info,
    }
    arrays = {name: np.asarray(leaf) for name, leaf in trees.named_leaves(params).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.replacing(path) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **arrays)


def read(file: Path) -> PolicyFile:
    """Read the header of a file and those of its arrays, not the arrays."""
    with npz.opened(file) as archive:
        header = _header(archive)
        arrays = {name: archive.header(name) for name in archive.names if name != _HEADER}
    try:
        spec = EnvSpec(_obs_from(header["obs"]), _action(header["action"]), _tokens(header))
        config = serialization.read(NetworkConfig, header["network"], f"'{file}', network")
        info = _object("info", header["info"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"it has no '{error.args[0]}'" if isinstance(error, KeyError) else error
        raise UserError(f"'{file}' has an invalid header: {reason}.") from error
    layers = max(len(config.hidden) + 2 * config.residual_blocks, config.rnn_layers)
    if layers > len(arrays):  # building them would take very long
        raise UserError(f"'{file}' names {layers} layers, but has fewer arrays.")
    return PolicyFile(spec, config, arrays, info)


def _header(archive: npz.Archive) -> dict[str, Any]:
    """Read the JSON header, which describes the networks."""
    file = archive.file
    if _HEADER not in archive.names:
        raise UserError(f"'{file}' is not a policy or reward of jaxrl: it has no '{_HEADER}'.")
    stored = archive.header(_HEADER)
    if stored.shape or stored.dtype.kind != "U" or stored.nbytes > _MAX_HEADER:
        raise UserError(f"'{file}': '{_HEADER}' is {stored}, not a text of a few thousand letters.")
    try:
        header = json.loads(str(archive.read(_HEADER)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{file}': '{_HEADER}' is not valid JSON: {error}") from error
    version = header.get("format") if isinstance(header, dict) else None
    if version != FORMAT or isinstance(version, bool):
        raise UserError(f"'{file}' has format {version!r:.40}, this version reads {FORMAT}.")
    return header


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"'{name}' is {value!r:.40}, not an object")
    return value


def _obs_from(description: Any) -> PyTree:
    obs = trees.parse_shapes(_object("obs", description))
    for leaf in jax.tree.leaves(obs):
        if leaf.dtype.kind not in _NUMERIC:
            raise TypeError(f"a dtype in 'obs' is {leaf.dtype}, not one of numbers")
    return obs


def _action(description: Any) -> ActionSpec:
    match description:
        case {"size": int(size), "discrete": bool(discrete)} if size > 0:
            return ActionSpec(size, discrete)
    raise TypeError(f"'action' is {description!r:.40}, not a size and whether it is discrete")


def _tokens(header: dict[str, Any]) -> tuple[int, ...]:
    tokens = header.get("tokens", [])
    if not isinstance(tokens, list) or not all(type(n) is int and n > 0 for n in tokens):
        raise TypeError(f"'tokens' is {tokens!r:.40}, not a list of sizes")
    return tuple(tokens)


def refuse_nonfinite(arrays: dict[str, np.ndarray], where: str) -> None:
    """Raise a UserError for non-finite weights: one NaN makes every action NaN."""
    for name, values in arrays.items():
        if np.issubdtype(values.dtype, np.inexact) and not np.isfinite(values).all():
            bad = values.size - int(np.isfinite(values).sum())
            raise UserError(
                f"{where} cannot be used: {bad:,} of {values.size:,} values of the array {name} "
                "are not finite. Use another policy or an earlier checkpoint."
            )


@contextlib.contextmanager
def building(file: Path) -> Iterator[None]:
    """Turn an error of building networks into a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # JAX and Flax raise many kinds for invalid sizes
        raise UserError(
            f"'{file}': its header describes no network: {first_line(error)}"
        ) from error


def fill(target: PyTree, arrays: dict[str, npz.Header], file: Path) -> PyTree:
    """Return a tree of shapes with its leaves read from a file."""
    wanted = trees.named_leaves(target)
    for name, leaf in wanted.items():
        if name not in arrays or arrays[name].shape != leaf.shape:
            stored = arrays[name].shape if name in arrays else "missing"
            raise UserError(f"'{file}': leaf {name} is {stored}, the network needs {leaf.shape}.")
    data = read_arrays(file, list(wanted))
    leaves = [jnp.asarray(data[name], leaf.dtype) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(target), leaves)


def read_arrays(file: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read arrays of a file; raise a UserError if they are not finite or do not fit in memory."""
    with npz.opened(file) as archive:
        headers = {name: archive.header(name) for name in names}
        for name, header in headers.items():
            if header.dtype.kind not in _NUMERIC:
                raise UserError(f"'{file}': '{name}' holds {header.dtype}, not numbers.")
        host_memory.check_fits(f"'{file}'", sum(header.nbytes for header in headers.values()))
        arrays = {name: archive.read(name) for name in names}
    refuse_nonfinite(arrays, f"'{file}'")
    return arrays
