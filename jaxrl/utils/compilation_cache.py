"""JAX's persistent compilation cache, switched on for every command."""

import contextlib
import os
from pathlib import Path

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
