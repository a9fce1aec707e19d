"""The arrays of a checkpoint as files: an Orbax checkpoint, or raw bytes.

Raw bytes are what is written while Python exits, and by processes other than the first.
"""

import contextlib
import functools
import logging
import math
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jax import numpy as jnp

from jaxrl.checkpoint import snapshot
from jaxrl.checkpoint.snapshot import CorruptCheckpointError
from jaxrl.errors import first_line
from jaxrl.utils import host_memory, processes

_RAW = ".raw"  # suffix of an array written without Orbax


def write_arrays(folder: Path, arrays: list[np.ndarray]) -> None:
    """Write arrays as an Orbax checkpoint, named by their position.

    Orbax needs threads, and since Python 3.12 an exiting interpreter starts none. It also gives up
    after some minutes, which pass too while the process is suspended. In both cases the bytes of
    each array are written to its own file instead.
    """
    # Orbax refuses arrays without elements; the shape of the leaf is enough to recreate them.
    tree = {str(i): data for i, data in enumerate(arrays) if data.size}
    try:
        if tree:
            _save(folder, tree)
    except RuntimeError:
        if _can_start_threads():
            raise
        # Python would warn of Orbax's unfinished coroutines while it exits.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        _save_raw(folder, tree)
    except TimeoutError:
        # Its threads may still write; what they leave is deleted with the checkpoint.
        for unfinished in folder.parent.glob(f"{folder.name}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        _save_raw(folder, tree)


def _can_start_threads() -> bool:
    thread = threading.Thread(target=lambda: None)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join()
    return True


def read_arrays(folder: Path, leaves: list[snapshot.Leaf]) -> list[np.ndarray]:
    """Read the arrays of all leaves and check their digests.

    Raises:
      CorruptCheckpointError: an array cannot be read or does not match its digest.
      UserError: they do not fit in memory.
    """
    sizes = [
        math.prod(leaf.stored_shape) * jnp.dtype(leaf.stored_dtype).itemsize for leaf in leaves
    ]
    host_memory.check_fits(f"the checkpoint '{folder.parent}'", sum(sizes), copies=1)
    try:
        arrays = [np.empty(leaf.stored_shape, jnp.dtype(leaf.stored_dtype)) for leaf in leaves]
        tree = {str(i): data for i, data in enumerate(arrays) if data.size}
        loaded = _load(folder, tree) if tree else {}
        arrays = [np.asarray(loaded.get(str(i), data)) for i, data in enumerate(arrays)]
    except Exception as error:  # tensorstore and Orbax raise many kinds for damaged files
        raise CorruptCheckpointError(f"its arrays cannot be read ({first_line(error)})") from error
    for leaf, data in zip(leaves, arrays, strict=True):
        if data.shape != leaf.stored_shape or snapshot.digest(data) != leaf.digest:
            raise CorruptCheckpointError(f"the data of leaf {leaf.path} does not match its digest")
    return arrays


def _load(folder: Path, tree: dict[str, np.ndarray]) -> Any:
    if not any(folder.glob("*" + _RAW)):
        return _load_orbax(folder, tree)
    files = {name: folder / (name + _RAW) for name in tree}
    return {
        name: np.fromfile(files[name], data.dtype, data.size).reshape(data.shape)
        for name, data in tree.items()
    }


def _load_orbax(folder: Path, tree: dict[str, np.ndarray]) -> Any:
    if processes.count() == 1:
        return _orbax().load(str(folder), tree)
    from orbax.checkpoint import RestoreArgs

    # A checkpoint that a single process wrote has its arrays in a folder below.
    below = next(folder.glob("*/_METADATA"), folder / "_METADATA").parent
    with _orbax_alone() as orbax:
        kinds = {name: RestoreArgs(restore_type=np.ndarray) for name in tree}
        return orbax.restore(str(below), restore_args=kinds)


def _save(folder: Path, tree: dict[str, np.ndarray]) -> None:
    if processes.count() == 1:
        _orbax().save(str(folder), tree)
    elif processes.is_main():
        with _orbax_alone() as orbax:
            orbax.save(str(folder), tree)
    else:  # Orbax writes NumPy arrays on process 0 only
        _save_raw(folder, tree)


def _save_raw(folder: Path, tree: dict[str, np.ndarray]) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in tree.items():
        # `tofile` loses the errors of a full disk.
        with (folder / (name + _RAW)).open("wb") as file:
            file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def _orbax_alone() -> Iterator[Any]:
    """Yield Orbax for this process: by default it would wait for all others, in every call."""
    import orbax.checkpoint as ocp

    _orbax()  # silences it
    me = processes.index()
    options: Any = {
        "multiprocessing_options": ocp.options.MultiprocessingOptions(
            primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"jaxrl-{me}"
        )
    }
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options), **options) as checkpointer:
        yield checkpointer


@functools.cache
def _orbax() -> Any:
    """Import Orbax at the first use: the import takes a third of a second."""
    from orbax.checkpoint import v1

    _silence_orbax()
    return v1


def _silence_orbax() -> None:
    """Keep Orbax from printing the failures that it also raises.

    Its threads log what they raise. When the first of many writes fails, Orbax closes the event
    loop that the others still report to, and each of them then prints "Event loop is closed", or
    asyncio logs that nobody has asked for its error.
    """
    logging.getLogger("absl").addFilter(lambda record: "_SignalingThread" not in str(record.msg))
    # A task names the file of its function.
    logging.getLogger("asyncio").addFilter(lambda record: "/orbax/" not in record.getMessage())
    show = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        error = unraisable.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            show(unraisable)

    sys.unraisablehook = hook
