"""A pytree as named NumPy arrays with digests, and back into a tree of the same structure."""

import functools
import hashlib
import math
from collections import Counter
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax import numpy as jnp
from jax.core import Tracer

from jaxrl.errors import UserError
from jaxrl.types import PyTree
from jaxrl.utils import processes, sharding

_PYTHON_SCALARS = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
_LISTED = 5  # differences spelled out in one message; the rest are counted


class CheckpointError(UserError):
    """A checkpoint cannot be written, read or used with this configuration."""


class SaveError(CheckpointError):
    """A checkpoint could not be written; those before it are intact."""


class CorruptCheckpointError(Exception):
    """The files of a checkpoint are not what was written."""


class Leaf(NamedTuple):
    """One leaf of the state: its shape and dtype, in memory and on disk."""

    path: str
    shape: tuple[int, ...]
    dtype: str  # of the state: "float32", "key<fry>", "python int"
    stored_shape: tuple[int, ...]
    stored_dtype: str
    key_impl: str | None = None
    digest: str = ""

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Return the leaf of fields read from JSON, which has no tuples.

        Raises:
          CorruptCheckpointError: no array of a state is stored like this.
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
        if not _is_storage_valid(leaf):
            raise CorruptCheckpointError(
                f"leaf {leaf.path:.60} is {leaf!s:.60}, which is not stored as "
                f"{leaf.stored_dtype:.20}{list(leaf.stored_shape)}"
            )
        return leaf

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def _is_shape(value: Any) -> bool:
    sizes = isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value)
    return sizes and math.prod(value) < 2**63  # no array has more elements


def _is_storage_valid(leaf: Leaf) -> bool:
    """Return whether stored shape and dtype belong to the leaf's shape and dtype."""
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
    """Return the dtype of one random key, and the shape and dtype of its data."""
    key = jax.eval_shape(lambda: jax.random.key(0, impl=impl))
    return str(key.dtype), jax.eval_shape(jax.random.key_data, key)


class Snapshot(NamedTuple):
    """CPU copy of a state, or of one process's part of it: leaves in order, and their data.

    A part has this process's rows of the arrays that are split over processes. The first part has
    all others too.
    """

    leaves: list[Leaf]
    arrays: list[np.ndarray]


def digest(data: np.ndarray) -> str:
    """Return the blake2b digest of the bytes of an array."""
    return hashlib.blake2b(np.ravel(data).view(np.uint8).data, digest_size=16).hexdigest()


def take(state: PyTree) -> Snapshot:
    """Copy a state to the CPU; the caller may donate or change its buffers afterwards.

    Raises:
      CheckpointError: a leaf cannot be stored. Raised before anything is written.
    """
    paths, leaves, _ = _flatten(state)
    for path, leaf in zip(paths, leaves, strict=True):
        _check_storable(path, leaf)
    selected = [
        (path, _own_rows(leaf))
        for path, leaf in zip(paths, leaves, strict=True)
        if processes.is_main() or is_split(leaf)
    ]
    paths, leaves = [path for path, _ in selected], [leaf for _, leaf in selected]
    # One device_get for all: the transfers of the leaves overlap.
    on_cpu = jax.device_get([_numeric(leaf) for leaf in leaves])
    records, arrays = [], []
    for path, leaf, data in zip(paths, leaves, on_cpu, strict=True):
        # On CPU device_get is a view of the device's buffer, which is about to be donated.
        if isinstance(leaf, np.ndarray) or not data.flags.owndata:
            data = np.array(data, order="C")
        data = _storable(np.asarray(data, order="C"))
        impl = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
        shape, dtype = _shape_and_dtype(leaf)
        records.append(Leaf(path, shape, dtype, data.shape, str(data.dtype), impl))
        arrays.append(data)
    return Snapshot(records, arrays)


def is_split(leaf: Any) -> bool:
    """Tell whether the rows of an array lie on several processes."""
    return (
        isinstance(leaf, jax.Array)
        and not leaf.is_fully_addressable
        and not leaf.is_fully_replicated
    )


def _own_rows(leaf: Any) -> Any:
    """Return the rows of an array that lie on this process, in order; all others as they are."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if not is_split(leaf):
        return leaf.addressable_data(0)
    data = sharding.local_rows(_numeric(leaf))
    if not _is_key(leaf):
        return data
    return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(leaf))


def own_rows(target: PyTree) -> dict[str, range]:
    """Return the rows that lie on this process, of the leaves that lie on several."""
    if processes.count() == 1:
        return {}
    paths, leaves, _ = _flatten(target)
    found = {}
    for path, leaf in zip(paths, leaves, strict=True):
        place = getattr(leaf, "sharding", None)
        if place is not None and not place.is_fully_addressable and leaf.shape:
            rows = [
                index[0] for index in place.addressable_devices_indices_map(leaf.shape).values()
            ]
            first = min(each.start or 0 for each in rows)
            last = max(leaf.shape[0] if each.stop is None else each.stop for each in rows)
            found[path] = range(first, last)
    return found


def rows_of_parts(parts: list[list[Leaf]]) -> list[dict[str, range]]:
    """Return which rows of the whole state each part has, by leaf."""
    ends: Counter[str] = Counter()
    found = []
    for part in parts:
        rows = {}
        for leaf in part:
            first = ends[leaf.path]
            ends[leaf.path] += leaf.shape[0] if leaf.shape else 1
            rows[leaf.path] = range(first, ends[leaf.path])
        found.append(rows)
    return found


def joined(parts: list[list[Leaf]]) -> list[Leaf]:
    """Return the leaves of a whole state from those of all its parts.

    Raises:
      CorruptCheckpointError: the parts do not fit together.
    """
    first, *others = parts
    names = [leaf.path for leaf in others[0]] if others else []
    if any([leaf.path for leaf in part] != names for part in others):
        raise CorruptCheckpointError("its parts have different leaves")
    rows = [dict(zip(names, part, strict=True)) for part in others]
    whole = []
    for leaf in first:
        each = [leaf, *(part[leaf.path] for part in rows if leaf.path in part)]
        if len({(x.dtype, x.key_impl, x.shape[1:], x.stored_dtype) for x in each}) > 1:
            raise CorruptCheckpointError(f"its parts have different kinds of {leaf.path}")
        if len(each) > 1:
            total = sum(x.shape[0] for x in each)
            stored = (total, *leaf.stored_shape[1:])
            leaf = leaf._replace(shape=(total, *leaf.shape[1:]), stored_shape=stored, digest="")
        whole.append(leaf)
    return whole


def with_digests(snapshot: Snapshot) -> list[Leaf]:
    """Return the leaves of a snapshot with the digest of each filled in."""
    pairs = zip(snapshot.leaves, snapshot.arrays, strict=True)
    return [leaf._replace(digest=digest(data)) for leaf, data in pairs]


def check_target(stored: list[Leaf], target: PyTree) -> None:
    """Raise CheckpointError naming the leaves in which a target differs from the checkpoint."""
    have = {leaf.path: leaf for leaf in stored}
    paths, leaves, _ = _flatten(target)
    wanted = dict(zip(paths, leaves, strict=True))
    problems = []
    for path, leaf in wanted.items():
        needed = Leaf(path, *_shape_and_dtype(leaf), (), "")
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


def rebuild(stored: list[Leaf], arrays: list[np.ndarray], target: PyTree) -> PyTree:
    """Return stored arrays in the structure, leaf types and shardings of a checked target."""
    paths, leaves, treedef = _flatten(target)
    index = {leaf.path: i for i, leaf in enumerate(stored)}
    values = []
    for path, leaf in zip(paths, leaves, strict=True):
        values.append(_place(stored[index[path]], arrays[index[path]], leaf))
    return jax.tree_util.tree_unflatten(treedef, values)


def is_number(value: Any) -> bool:
    """Return whether a value read from JSON is a finite number."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def check_json(value: Any, path: str) -> None:
    """Raise CheckpointError for a value that JSON cannot store exactly."""
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


def _flatten(tree: PyTree) -> tuple[list[str], list[Any], Any]:
    """Return unique readable paths, the leaves, and the structure of a tree."""
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


def _numeric(leaf: Any) -> Any:
    """Return a leaf as an array of plain numbers."""
    if type(leaf) in _PYTHON_SCALARS:
        return np.asarray(leaf, _PYTHON_SCALARS[type(leaf)])
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _storable(data: np.ndarray) -> np.ndarray:
    """Return data in a dtype that tensorstore supports: float8 and int4 are stored as bytes."""
    return data.view(_stored_dtype(data.dtype))


def _stored_dtype(dtype: np.dtype) -> np.dtype:
    small = dtype.isbuiltin == 2 and dtype.itemsize == 1  # 2: defined outside of numpy
    return np.dtype(np.uint8) if small else dtype


def _shape_and_dtype(leaf: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a leaf, concrete or abstract."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return tuple(leaf.shape), str(leaf.dtype)
    return (), f"python {type(leaf).__name__}"


def _matches(stored: Leaf, leaf: Any) -> bool:
    if (stored.shape, stored.dtype) == _shape_and_dtype(leaf):
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
    """Return data with the leaf type and sharding of the target."""
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
        value = jax.device_put(data.item())  # a strong type here would compile again
    else:
        value = data
    # An uncommitted target stays uncommitted, or jit would refuse to mix it with sharded arrays.
    place = leaf.sharding if getattr(leaf, "committed", True) else None
    if place is not None and not place.is_fully_addressable:
        return sharding.put(value, place)
    return jax.device_put(value, place, may_alias=False)
