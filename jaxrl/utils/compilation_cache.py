"""JAX's persistent compilation cache, switched on for every command."""

import contextlib
import os
from pathlib import Path
from typing import Any

import jax


def enable() -> None:
    """Keep compiled programs between runs, and give XLA less to read; the user's settings win."""
    # Every operation names one line of source. XLA sorts whole tracebacks, for a second or more.
    if "JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS" not in os.environ:
        jax.config.update("jax_include_full_tracebacks_in_locations", False)
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        with contextlib.suppress(OSError):
            directory = Path(base) / "jaxrl" / "xla"
            directory.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(directory))


def store_on_every_process() -> None:
    """Let all of several processes store what they compile for CPUs.

    JAX stores the programs of process 0 only, and on CPUs the keys of the others differ: they
    would compile everything again at each start, while process 0 waits.
    """
    from jax._src import compilation_cache, compiler

    write = compiler._cache_write

    def write_everywhere(*args: Any) -> None:
        write(*args)
        with contextlib.suppress(Exception):  # a cache, and functions without public names
            key, seconds, name, backend, executable, callbacks = args
            least = jax.config.jax_persistent_cache_min_compile_time_secs  # type: ignore[attr-defined]
            on_other_cpu = backend.platform == "cpu" and backend.process_index() > 0
            if on_other_cpu and not callbacks and seconds >= least:
                compilation_cache.put_executable_and_time(
                    key, name, executable, backend, int(seconds)
                )

    compiler._cache_write = write_everywhere
