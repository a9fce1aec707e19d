"""Compiler options for the devices and the program."""

import os
import time
from typing import Any

import jax

# Physics and networks are hundreds of kernels too small to fill a GPU: let independent ones run
# concurrently; XLA's default is sequential. The fusion autotuner made none of our programs faster,
# and takes longer to compile.
_CUDA_OPTIONS = {
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_experimental_enable_fusion_autotuner": False,
}
# Loops of known length are unrolled into one CUDA graph when a program is first run, so that the
# CPU launches an iteration instead of thousands of kernels. Not for long loops: every kernel of
# every iteration is a node.
_UNROLLED_OPTIONS = {
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE"
    ),
    "xla_gpu_command_buffer_unroll_loops": True,
}
# On CPUs, programs with loops of unknown length (MuJoCo's solver) sometimes deadlock when XLA
# splits operations over threads: seen with jaxlib 0.10.2, every few hundred steps. (jaxrl also sets
# a flag against it; this is an older, weaker remedy.)
_LOOPING_OPTIONS = {"xla_cpu_multi_thread_eigen": False}


# Failures to start a program that the compiler needs, and the seconds before each new attempt.
_TRANSIENT = (
    "Failed to launch ptxas",
    "Failed to launch nvlink",
    "Resource temporarily unavailable",
)
_PAUSES = (1.0, 5.0, 20.0)


def options(
    version: str | None = None, *, loops: bool = False, unrolled: bool = False
) -> dict[str, Any]:
    """Return compiler options for the devices and for physics with solver loops; XLA_FLAGS win."""
    version = version or jax.local_devices()[0].client.platform_version
    wanted = {}
    if "cuda" in version:
        wanted = _CUDA_OPTIONS | _UNROLLED_OPTIONS if unrolled else _CUDA_OPTIONS
    if loops and version == "cpu":
        wanted = _LOOPING_OPTIONS
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in wanted.items() if name not in flags}


class CompilerBusyError(RuntimeError):
    """A program could not be compiled for want of something that the machine may have later."""


def compile_for_devices(
    lowered: Any, version: str | None = None, *, loops: bool = False, unrolled: bool = False
) -> jax.stages.Compiled:
    """Compile with these options; `unrolled`: loops of known length become one CUDA graph.

    The compiler starts programs of its own (ptxas), which a busy machine may refuse for a moment:
    such a failure is tried again.
    """
    wanted = options(version, loops=loops, unrolled=unrolled)
    pauses = iter(_PAUSES)
    while True:
        try:
            return lowered.compile(compiler_options=wanted)
        except jax.errors.JaxRuntimeError as error:
            if any(words in str(error) for words in _TRANSIENT):
                if (pause := next(pauses, None)) is None:
                    raise CompilerBusyError(str(error)) from error
                time.sleep(pause)
                continue
            # Without an unknown option, and those that belong to it, results are the same.
            unknown = {name for name in wanted if name in str(error)}
            if not unknown:
                raise
            if unknown & set(_UNROLLED_OPTIONS):
                unknown |= set(_UNROLLED_OPTIONS)
            wanted = {name: value for name, value in wanted.items() if name not in unknown}
