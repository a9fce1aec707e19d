"""A pytree as named host arrays with digests, and back into a tree of the same structure."""

import functools
import hashlib
import logging
import math
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax import numpy as jnp
from jax.core import Tracer

from jaxrl.errors import UserError, first_line
from jaxrl.utils import host_memory

_PYTHON_SCALARS = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
_RAW = ".raw"  # suffix of an array written without Orbax
_LISTED = 5  # differences spelled out in one message; the rest are counted


class CheckpointError(UserError):
    """A checkpoint cannot be written, read or used with this configuration."""


class CorruptCheckpointError(Exception):
    """What lies on disk is not what was written."""


class Leaf(NamedTuple):
    """One leaf of the state: what it is, and how its bytes lie on disk."""

    path: str
    shape: tuple[int, ...]
    dtype: str  # of the state: "float32", "key<fry>", "python int"
    stored_shape: tuple[int, ...]
    stored_dtype: str
    key_impl: str | None = None
    digest: str = ""

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Return the leaf whose fields were written as JSON, which has no tuples.

        Raises:
          DamagedError: no array of a state is written like this.
        """
        if not isinstance(fields, dict) or fields.keys() != set(cls._fields):
            raise CorruptCheckpointError(f"a leaf of its manifest is {fields!r:.60}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        leaf = cls(**values)
        texts = (leaf.path, leaf.dtype, leaf.stored_dtype, leaf.digest, leaf.key_impl or "")
        sizes = [leaf.shape, leaf.stored_shape]
        if not all(isinstance(text, str) for text in texts) or not all(map(_is_shape, sizes)):
            raise CorruptCheckpointError(f"a leaf of its manifest is {fields!r:.60}")
        if not _is_stored_so(leaf):
            raise CorruptCheckpointError(
                f"leaf {leaf.path:.60} is {leaf!s:.60}, which is not stored as "
                f"{leaf.stored_dtype:.20}{list(leaf.stored_shape)}"
            )
        return leaf

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value)


def _is_stored_so(leaf: Leaf) -> bool:
    """Tell whether a leaf of its shape and dtype is written with its stored shape and dtype."""
    kinds = {f"python {kind.__name__}": np.dtype(d) for kind, d in _PYTHON_SCALARS.items()}
    try:
        stored = jnp.dtype(leaf.stored_dtype)
        if leaf.key_impl is not None:
            dtype, data = _key_layout(leaf.key_impl)
            expected = dtype, (*leaf.shape, *data.shape), data.dtype
            return (leaf.dtype, leaf.stored_shape, stored) == expected
        if leaf.dtype in kinds:
            return (leaf.shape, leaf.stored_shape, stored) == ((), (), kinds[leaf.dtype])
        dtype = jnp.dtype(leaf.dtype)
        same = stored == _stored_dtype(dtype) and leaf.shape == leaf.stored_shape
        return same and (jnp.issubdtype(dtype, np.number) or dtype == np.bool_)
    except (TypeError, ValueError):  # no such dtype, no such kind of key
        return False


@functools.lru_cache(maxsize=8)
def _key_layout(impl: str) -> tuple[str, jax.ShapeDtypeStruct]:
    """Return the dtype of one random key, and the form of its data."""
    key = jax.eval_shape(lambda: jax.random.key(0, impl=impl))
    return str(key.dtype), jax.eval_shape(jax.random.key_data, key)


class Snapshot(NamedTuple):
    """Host copy of a state: the leaves in order, and their data."""

    leaves: list[Leaf]
    arrays: list[np.ndarray]


def digest(data: np.ndarray) -> str:
    """Return the blake2b digest of the bytes of an array."""
    return hashlib.blake2b(np.ravel(data).view(np.uint8).data, digest_size=16).hexdigest()


def take(state: Any) -> Snapshot:
    """Copy a state to the host; the caller may donate or change its buffers afterwards.

    Raises:
      CheckpointError: a leaf cannot be stored. Found here, before anything is written.
    """
    paths, leaves, _ = _flatten(state)
    for path, leaf in zip(paths, leaves, strict=True):
        _check_storable(path, leaf)
    # One device_get for all: the transfers of the leaves overlap.
    host = jax.device_get([_raw(leaf) for leaf in leaves])
    records, arrays = [], []
    for path, leaf, data in zip(paths, leaves, host, strict=True):
        # On CPU device_get is a view of the device's buffer, which is about to be donated.
        if isinstance(leaf, np.ndarray) or not data.flags.owndata:
            data = np.array(data, order="C")
        data = _storable(np.asarray(data, order="C"))
        impl = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
        shape, dtype = _kind(leaf)
        records.append(Leaf(path, shape, dtype, data.shape, str(data.dtype), impl))
        arrays.append(data)
    return Snapshot(records, arrays)


def with_digests(snapshot: Snapshot) -> list[Leaf]:
    """Return the leaves of a snapshot with the digest of each filled in."""
    pairs = zip(snapshot.leaves, snapshot.arrays, strict=True)
    return [leaf._replace(digest=digest(data)) for leaf, data in pairs]


def write_arrays(folder: Path, arrays: list[np.ndarray]) -> None:
    """Write arrays as an Orbax checkpoint, named by their position.

    Orbax needs threads, and since Python 3.12 an interpreter that is exiting starts none. A save
    that is overtaken by the exit writes the bytes of each array to a file of its own instead.
    """
    # Orbax refuses arrays without elements; the shape of the leaf is enough to make them again.
    tree = {str(i): data for i, data in enumerate(arrays) if data.size}
    try:
        if tree:
            _orbax().save(str(folder), tree)
    except RuntimeError:
        if _can_start_threads():
            raise
        # What Orbax left unfinished would be announced while the interpreter exits.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        folder.mkdir(exist_ok=True)
        for name, data in tree.items():
            data.tofile(folder / (name + _RAW))


def _can_start_threads() -> bool:
    thread = threading.Thread(target=lambda: None)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join()
    return True


def read_arrays(folder: Path, leaves: list[Leaf]) -> list[np.ndarray]:
    """Read the arrays of all leaves; raise DamagedError unless each matches its digest."""
    sizes = [
        math.prod(leaf.stored_shape) * jnp.dtype(leaf.stored_dtype).itemsize for leaf in leaves
    ]
    try:
        host_memory.check_fits("it", sum(sizes), copies=1)
        arrays = [np.empty(leaf.stored_shape, jnp.dtype(leaf.stored_dtype)) for leaf in leaves]
        tree = {str(i): data for i, data in enumerate(arrays) if data.size}
        loaded = _load(folder, tree) if tree else {}
        arrays = [np.asarray(loaded.get(str(i), data)) for i, data in enumerate(arrays)]
    except Exception as error:  # damaged files raise whatever tensorstore and Orbax make of them
        raise CorruptCheckpointError(f"its arrays cannot be read ({first_line(error)})") from error
    for leaf, data in zip(leaves, arrays, strict=True):
        if data.shape != leaf.stored_shape or digest(data) != leaf.digest:
            raise CorruptCheckpointError(f"the data of leaf {leaf.path} does not match its digest")
    return arrays


def _load(folder: Path, tree: dict[str, np.ndarray]) -> Any:
    if not any(folder.glob("*" + _RAW)):
        return _orbax().load(str(folder), tree)
    files = {name: folder / (name + _RAW) for name in tree}
    return {
        name: np.fromfile(files[name], data.dtype, data.size).reshape(data.shape)
        for name, data in tree.items()
    }


@functools.cache
def _orbax() -> Any:
    """Import Orbax when it is first needed: that takes a third of a second of every start."""
    from orbax.checkpoint import v1

    _silence_orbax()
    return v1


def _silence_orbax() -> None:
    """Keep Orbax from printing the failures that it also raises.

    Its threads log what they raise. When the first of many writes fails, Orbax closes the event
    loop that the others still report to, and each of them then prints "Event loop is closed".
    """
    logging.getLogger("absl").addFilter(lambda record: "_SignalingThread" not in str(record.msg))
    show = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        error = unraisable.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            show(unraisable)

    sys.unraisablehook = hook


def check_target(stored: list[Leaf], target: Any) -> None:
    """Raise CheckpointError naming the leaves in which a target differs from what is stored."""
    have = {leaf.path: leaf for leaf in stored}
    paths, leaves, _ = _flatten(target)
    wanted = dict(zip(paths, leaves, strict=True))
    problems = []
    for path, leaf in wanted.items():
        needed = Leaf(path, *_kind(leaf), (), "")
        if path not in have:
            problems.append(f"checkpoint has no leaf {path}, this configuration needs {needed}")
        elif not _matches(have[path], leaf):
            problems.append(
                f"checkpoint leaf {path} is {have[path]}, this configuration needs {needed}"
            )
    for path in have.keys() - wanted.keys():
        problems.append(f"checkpoint leaf {path} ({have[path]}) is not in this configuration")
    if problems:
        listed = "\n".join(sorted(problems)[:_LISTED])
        more = f"\nand {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise CheckpointError(
            f"{listed}{more}; resume with the settings of the run or start a new run"
        )
    for path, leaf in wanted.items():
        _check_placeable(path, leaf)


def rebuild(stored: list[Leaf], arrays: list[np.ndarray], target: Any) -> Any:
    """Return stored data in the structure, leaf types and shardings of a checked target."""
    paths, leaves, treedef = _flatten(target)
    index = {leaf.path: i for i, leaf in enumerate(stored)}
    values = []
    for path, leaf in zip(paths, leaves, strict=True):
        values.append(_place(stored[index[path]], arrays[index[path]], leaf))
    return jax.tree_util.tree_unflatten(treedef, values)


def is_number(value: Any) -> bool:
    """Tell whether a value read from JSON is a finite number."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def check_json(value: Any, path: str) -> None:
    """Raise CheckpointError for what JSON cannot hold without changing it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise CheckpointError(f"{path} has the key {key!r}; keys must be strings")
            check_json(item, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            check_json(item, f"{path}/{i}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise CheckpointError(f"{path} is {value}; numbers must be finite, or None")
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise CheckpointError(f"{path} is a {type(value).__name__}, which is not plain JSON")


def _flatten(tree: Any) -> tuple[list[str], list[Any], Any]:
    """Return readable paths, made unique, with the leaves and the structure."""
    pairs, treedef = jax.tree_util.tree_flatten_with_path(tree)
    seen: Counter[str] = Counter()
    paths = []
    for key_path, _ in pairs:
        path = jax.tree_util.keystr(key_path, simple=True, separator="/") or "(root)"
        seen[path] += 1
        # A dict key may itself hold a slash: {"a/b": x, "a": {"b": y}}.
        paths.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return paths, [leaf for _, leaf in pairs], treedef


def _check_storable(path: str, leaf: Any) -> None:
    reason = _unstorable(leaf)
    if reason:
        raise CheckpointError(f"state leaf {path} cannot be saved: {reason}")


def _unstorable(leaf: Any) -> str | None:
    """Return why a leaf cannot be stored, or None when it can."""
    if type(leaf) in _PYTHON_SCALARS:
        fits = not isinstance(leaf, int) or -(2**63) <= leaf < 2**63
        return None if fits else f"the integer {leaf} needs more than 64 bits"
    if isinstance(leaf, Tracer):
        return "it is a traced value; save outside of jit"
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return f"it is a {type(leaf).__name__}, not an array or a number"
    if isinstance(leaf, jax.Array):
        if leaf.is_deleted():
            return "its buffer was deleted or donated; save the state before donating it"
        if not leaf.is_fully_addressable:
            return "it is spread over several processes, which is not supported"
        if _is_key(leaf):
            return None
    dtype = leaf.dtype
    number = jnp.issubdtype(dtype, np.number) or dtype == np.bool_
    long_double = dtype.itemsize > (16 if dtype.kind == "c" else 8)
    if not number or not dtype.isnative or long_double:
        return f"its dtype {dtype} is not supported"
    return None


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _raw(leaf: Any) -> Any:
    """Return a leaf as something with plain numbers."""
    if type(leaf) in _PYTHON_SCALARS:
        return np.asarray(leaf, _PYTHON_SCALARS[type(leaf)])
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _storable(data: np.ndarray) -> np.ndarray:
    """Return data in a dtype that tensorstore knows: its float8 and int4 kinds go as bytes."""
    return data.view(_stored_dtype(data.dtype))


def _stored_dtype(dtype: np.dtype) -> np.dtype:
    small = dtype.isbuiltin == 2 and dtype.itemsize == 1  # 2: defined outside of numpy
    return np.dtype(np.uint8) if small else dtype


def _kind(leaf: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a leaf, concrete or abstract."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype)
    return (), f"python {type(leaf).__name__}"


def _matches(stored: Leaf, leaf: Any) -> bool:
    if (stored.shape, stored.dtype) == _kind(leaf):
        return True
    # jax.eval_shape shows a python number as a weakly typed scalar.
    weak = isinstance(leaf, jax.ShapeDtypeStruct) and leaf.weak_type and leaf.shape == ()
    return weak and stored.dtype.startswith("python") and _same_kind(stored, leaf)


def _same_kind(stored: Leaf, leaf: Any) -> bool:
    return np.dtype(stored.stored_dtype).kind == np.dtype(leaf.dtype).kind


def _check_placeable(path: str, leaf: Any) -> None:
    mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
    if isinstance(mesh, jax.sharding.AbstractMesh):
        raise CheckpointError(
            f"target leaf {path} is sharded over an abstract mesh; give shardings with devices"
        )


def _place(stored: Leaf, data: np.ndarray, leaf: Any) -> Any:
    """Return data as the kind of leaf that the target has, where the target has it."""
    if stored.dtype.startswith("python"):
        return data.item()
    if stored.key_impl is None:
        data = data.view(jnp.dtype(stored.dtype))
    if isinstance(leaf, np.generic):
        return data[()]
    if isinstance(leaf, np.ndarray):
        return data
    # A restored state is donated: it must own its memory, so no aliasing of the numpy array.
    if stored.key_impl is not None:
        value = jax.random.wrap_key_data(
            jax.device_put(data, may_alias=False), impl=stored.key_impl
        )
    elif leaf.weak_type and leaf.shape == ():
        value = jax.device_put(data.item())  # a strong type here would compile anew
    else:
        value = data
    # An uncommitted target stays uncommitted, or jit would refuse to mix it with sharded arrays.
    placed = leaf.sharding if getattr(leaf, "committed", True) else None
    return jax.device_put(value, placed, may_alias=False)
