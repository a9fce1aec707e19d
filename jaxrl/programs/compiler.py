"""Compiling functions side by side, from their cached form where there is one."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
from jax import export

from jaxrl.envs.env_state import Template
from jaxrl.programs import trace_cache
from jaxrl.types import PyTree
from jaxrl.utils.xla_options import CompilerBusyError, compile_for_devices

# Kernels are stored in a form of this version of JAX alone; so is what the cache keeps.
UNCHECKED = [export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]


class PendingProgram:
    """A program that a thread compiles.

    Where that failed because the machine was busy, it is tried again when the program is needed.
    """

    def __init__(self, threads: ThreadPoolExecutor, work: "Callable[[], Compiled]"):
        self._future = threads.submit(work)
        self._work: Callable[[], Compiled] | None = work  # holds the program before compilation

    def result(self) -> "Compiled":
        """Wait for the program."""
        try:
            program = self._future.result()
        except CompilerBusyError:
            if self._work is None:
                raise
            program = self._work()
            self._future = Future()
            self._future.set_result(program)
        self._work = None
        return program


class Builder:
    """Trace functions one after the other, or take them from the cache, and compile in threads.

    Whatever trees a function takes, its program takes tuples of arrays; so that programs can be
    cached without naming a class, functions must return nothing but dicts, tuples and arrays.
    """

    def __init__(
        self, cache: trace_cache.TraceCache | None, template: Template, *, loops: bool = False
    ):
        self._cache, self._template, self._loops = cache, template, loops
        self._traced: dict[str, bytes] = {}
        # First come, first compiled: with few cores, what is needed first must not wait.
        workers = min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="compile")

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._cache and self._traced and kind is None:
            stored = trace_cache.CachedPrograms(self._template, self._traced)
            self._threads.submit(trace_cache.save, self._cache.path, stored)
        self._threads.shutdown(wait=False)

    def __call__(
        self,
        function: Callable,
        *shapes: PyTree,
        places: PyTree,
        donate_first: bool = False,
        unrolled: bool = False,
    ) -> PendingProgram:
        """Begin to compile a function; `places` are the shardings of its results."""
        structures = [jax.tree.structure(shape) for shape in shapes]
        plain_shapes = [_plain(shape) for shape in shapes]

        def plain(*arguments: tuple) -> Any:
            return function(*map(jax.tree.unflatten, structures, arguments))

        name, settings = function.__name__, {"out_shardings": places}
        cached = self._cached(name, jax.jit(plain, **settings), plain_shapes)
        if donate_first:
            settings["donate_argnums"] = 0
        program = jax.jit(cached.call if cached else plain, **settings)
        # Lowering a function traces it, here and now; a cached one can wait for its thread.
        lowered = None if cached else program.lower(*plain_shapes)

        def work() -> Compiled:
            program_now = lowered or program.lower(*plain_shapes)
            return Compiled(compile_for_devices(program_now, loops=self._loops, unrolled=unrolled))

        return PendingProgram(self._threads, work)

    def _cached(
        self, name: str, function: jax.stages.Wrapped, shapes: list
    ) -> export.Exported | None:
        """Return the traced form of a function, from the cache or for it; None: uncacheable."""
        if self._cache is None:
            return None
        if self._cache.stored:
            return export.deserialize(bytearray(self._cache.stored.programs[name]))
        function.trace(*shapes)  # an error in the function itself is not to be hidden below
        try:
            traced = export.export(function, disabled_checks=UNCHECKED)(*shapes)  # type: ignore[arg-type]
            self._traced[name] = bytes(traced.serialize())
        except (ValueError, NotImplementedError):  # something in it has no lasting form
            self._cache = None
            return None
        return traced


def _plain(tree: PyTree) -> tuple:
    return tuple(jax.tree.leaves(tree))


class Compiled(NamedTuple):
    """A compiled function of any trees."""

    program: jax.stages.Compiled

    def __call__(self, *arguments: PyTree) -> Any:
        """Run it; it returns before the devices are done."""
        return self.program(*map(_plain, arguments))

    @property
    def bytes(self) -> int:
        """Memory on each device at its peak: arguments, results and temporaries."""
        return peak_bytes(self.program)


def peak_bytes(program: jax.stages.Compiled) -> int:
    """Return the memory of a compiled program: arguments, results and temporaries."""
    need: Any = program.memory_analysis()
    results = need.output_size_in_bytes - need.alias_size_in_bytes
    return need.argument_size_in_bytes + results + need.temp_size_in_bytes
