"""A profiler trace of one cycle, kernel by kernel."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax

_WARM_UP = 2  # cycles before the traced one


def chosen_cycle(done: int, total: int) -> int:
    """Return the number of the cycle to trace, if `done` of `total` are finished."""
    return min(done + _WARM_UP, total - 1)


@contextlib.contextmanager
def trace(folder: Path, *, when: bool) -> Iterator[None]:
    """Profile the block into `folder`, for TensorBoard's profiler and Perfetto."""
    if not when:
        yield
        return
    with jax.profiler.trace(str(folder), create_perfetto_trace=True):
        yield
