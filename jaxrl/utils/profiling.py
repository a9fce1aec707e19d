"""A trace of one cycle: what the device did, kernel by kernel."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax

_SETTLED = 2  # cycles before it: the first ones still load, allocate and warm up


def chosen_cycle(done: int, total: int) -> int:
    """Return the number of the cycle to trace, `done` of `total` being run already."""
    return min(done + _SETTLED, total - 1)


@contextlib.contextmanager
def trace(folder: Path, *, when: bool) -> Iterator[None]:
    """Record what runs inside into `folder`, for TensorBoard's profiler and for Perfetto."""
    if not when:
        yield
        return
    with jax.profiler.trace(str(folder), create_perfetto_trace=True):
        yield
