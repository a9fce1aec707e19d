"""Compiling functions side by side, from their kept form where there is one."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
from jax import export

from jaxrl.envs.world import Template
from jaxrl.runtime import exported
from jaxrl.types import PyTree

# Physics and networks are hundreds of kernels too small to fill a GPU: let those that do not
# depend on each other run at the same time. XLA's default puts them in a row. Its search for the
# best form of each fused kernel made none of our programs faster, and starts later.
_CUDA_OPTIONS = {
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_experimental_enable_fusion_autotuner": False,
}
# Loops of known length are written out into one CUDA graph when a program is first run, so that
# the host launches an iteration instead of thousands of pieces. Not for loops that are long: every
# kernel of every turn is a node.
_UNROLLED_OPTIONS = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE"
    ),
    "xla_gpu_command_buffer_unroll_loops": True,
}
# On processors, programs with loops of unknown length (MuJoCo's solver) now and then wait for ever
# when XLA splits operations over threads: seen with jaxlib 0.10.2, every few hundred steps. (The
# package sets a flag against the same; this is the older, weaker remedy, kept beside it.)
_LOOPING_OPTIONS = {"xla_cpu_multi_thread_eigen": False}


def options(
    version: str | None = None, *, loops: bool = False, unrolled: bool = False
) -> dict[str, Any]:
    """Return what suits the devices, and physics that solves in loops; XLA_FLAGS win."""
    version = version or jax.local_devices()[0].client.platform_version
    wanted = {}
    if "cuda" in version:
        wanted = _CUDA_OPTIONS | _UNROLLED_OPTIONS if unrolled else _CUDA_OPTIONS
    if loops and version == "cpu":
        wanted = _LOOPING_OPTIONS
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in wanted.items() if name not in flags}


def compile_for_devices(
    lowered: Any, version: str | None = None, *, loops: bool = False, unrolled: bool = False
) -> jax.stages.Compiled:
    """Compile with the options that suit; `unrolled`: loops of known length become one graph."""
    wanted = options(version, loops=loops, unrolled=unrolled)
    while True:
        try:
            return lowered.compile(compiler_options=wanted)
        except jax.errors.JaxRuntimeError as error:
            # An XLA that does not know an option is as right without it, and what goes with it.
            unknown = {name for name in wanted if name in str(error)}
            if not unknown:
                raise
            if unknown & set(_UNROLLED_OPTIONS):
                unknown |= set(_UNROLLED_OPTIONS)
            wanted = {name: value for name, value in wanted.items() if name not in unknown}


class Builder:
    """Trace functions one after the other, or take them from the shelf, and compile in threads.

    Whatever trees a function takes, its program takes tuples of arrays; so that programs can be
    kept without naming a class, functions must return nothing but dicts, tuples and arrays.
    """

    def __init__(self, shelf: exported.Shelf | None, template: Template, *, loops: bool = False):
        self._shelf, self._template, self._loops = shelf, template, loops
        self._traced: dict[str, bytes] = {}
        # First come, first compiled: with few cores, what is needed first must not wait.
        workers = min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="compile")

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._shelf and self._traced and kind is None:
            stored = exported.Stored(self._template, self._traced)
            self._threads.submit(exported.save, self._shelf.path, stored)
        self._threads.shutdown(wait=False)

    def __call__(
        self,
        function: Callable,
        *shapes: PyTree,
        places: PyTree,
        uses_up_first: bool = False,
        unrolled: bool = False,
    ) -> Future:
        """Return a future of the compiled function; `places` are the shardings of its results."""
        structures = [jax.tree.structure(shape) for shape in shapes]
        plain_shapes = [_plain(shape) for shape in shapes]

        def plain(*arguments: tuple) -> Any:
            return function(*map(jax.tree.unflatten, structures, arguments))

        name, settings = function.__name__, {"out_shardings": places}
        kept = self._kept(name, jax.jit(plain, **settings), plain_shapes)
        if uses_up_first:
            settings["donate_argnums"] = 0
        program = jax.jit(kept.call if kept else plain, **settings)
        # Lowering a function traces it, here and now; a kept one can wait for its thread.
        lowered = None if kept else program.lower(*plain_shapes)

        def work() -> Compiled:
            program_now = lowered or program.lower(*plain_shapes)
            return Compiled(compile_for_devices(program_now, loops=self._loops, unrolled=unrolled))

        return self._threads.submit(work)

    def _kept(
        self, name: str, function: jax.stages.Wrapped, shapes: list
    ) -> export.Exported | None:
        """Return the traced form of a function, from the shelf or for it; None: not to be kept."""
        if self._shelf is None:
            return None
        if self._shelf.stored:
            return export.deserialize(bytearray(self._shelf.stored.programs[name]))
        function.trace(*shapes)  # an error in the function itself is not to be hidden below
        try:
            traced = export.export(function)(*shapes)  # type: ignore[arg-type]
            self._traced[name] = bytes(traced.serialize())
        except (ValueError, NotImplementedError):  # something in it has no lasting form
            self._shelf = None
            return None
        return traced


def _plain(tree: PyTree) -> tuple:
    return tuple(jax.tree.leaves(tree))


class Compiled(NamedTuple):
    """A compiled function of any trees."""

    program: jax.stages.Compiled

    def __call__(self, *arguments: PyTree) -> Any:
        """Run it; devices go on while the host does."""
        return self.program(*map(_plain, arguments))

    @property
    def bytes(self) -> int:
        """Memory on each device at its peak: arguments, results and temporaries."""
        need: Any = self.program.memory_analysis()
        results = need.output_size_in_bytes - need.alias_size_in_bytes
        return need.argument_size_in_bytes + results + need.temp_size_in_bytes
