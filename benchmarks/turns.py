"""Processes that compile at the same time, and are timed one after the other."""

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple


class Turns(NamedTuple):
    """What processes share: all compile at once, then one at a time is timed."""

    compiled: threading.Barrier
    timing: threading.Lock

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait until nobody compiles and nobody is timed: both would disturb."""
        print(f"{name}: compiled", flush=True)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.compiled.wait()
        with self.timing:
            yield


def in_processes(
    measure: Callable[..., dict[str, Any]], tasks: list[tuple], at_once: int
) -> Iterator[dict[str, Any]]:
    """Call `measure(turns, *task)` in a process for each task; yield rows in the order of tasks."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        for first in range(0, len(tasks), at_once):
            group = tasks[first : first + at_once]
            turns = Turns(manager.Barrier(len(group)), manager.Lock())
            with ProcessPoolExecutor(len(group), context) as pool:
                for row in [pool.submit(_measure, measure, turns, *task) for task in group]:
                    yield row.result()


def _measure(measure: Callable[..., dict[str, Any]], turns: Turns, *task: Any) -> dict[str, Any]:
    try:
        return measure(turns, *task)
    except BaseException:
        turns.compiled.abort()  # the others need not wait
        raise
