"""The precision that physics is traced in."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def physics() -> Iterator[None]:
    """Trace physics in full float32, without this package's strict checks of rank promotion."""
    with jax.default_matmul_precision("highest"), jax.numpy_rank_promotion("allow"):
        yield
