"""XLA flags, set only if the installed jaxlib supports them, and how memory is allocated.

XLA reads XLA_FLAGS when it is first used, and ends the process at an unknown flag. Every flag that
jaxrl or its tests set is listed here with the jaxlib versions that it was tested with.
`tests/utils/test_xla_flags.py` tests those of the installed version.
"""

import os
from importlib.metadata import version

_Release = tuple[int, int]
# The first and the last jaxlib that a flag was tested with.
_TESTED: dict[str, tuple[_Release, _Release]] = {
    # On CPUs, physics with loops of unknown length (MuJoCo's solver) can deadlock with every thread
    # idle: nearly always with a thousand environments. The same option of a single program does
    # not help. Training was no slower without it.
    "xla_cpu_enable_concurrency_optimized_scheduler": ((0, 10), (0, 12)),
    # The rest is for tests: many devices, quick compilation, no hanging.
    "xla_force_host_platform_device_count": ((0, 10), (0, 12)),
    "xla_backend_optimization_level": ((0, 10), (0, 12)),
    "xla_llvm_disable_expensive_passes": ((0, 10), (0, 12)),
    "xla_cpu_use_fusion_emitters": ((0, 10), (0, 10)),
    "xla_cpu_opt_preset": ((0, 10), (0, 10)),
    "xla_cpu_parallel_codegen_split_count": ((0, 10), (0, 12)),
    "xla_cpu_multi_thread_eigen": ((0, 10), (0, 12)),
}


def supported(jaxlib: str) -> list[str]:
    """Return the flags of the table that a jaxlib version was tested with."""
    release = tuple(map(int, jaxlib.split(".")[:2]))
    return [name for name, (first, last) in _TESTED.items() if first <= release <= last]


def add(**flags: object) -> None:
    """Append flags to XLA_FLAGS, except those set by the user or not supported by jaxlib.

    Call it before JAX is first used: `add(xla_cpu_multi_thread_eigen=False)`.
    """
    present = os.environ.get("XLA_FLAGS", "").split()
    chosen = {part.split("=")[0].lstrip("-") for part in present}
    usable = set(supported(version("jaxlib"))) - chosen
    present += [f"--{name}={str(flags[name]).lower()}" for name in flags if name in usable]
    os.environ["XLA_FLAGS"] = " ".join(present)


def allocate_as_needed() -> None:
    """Let the memory of a GPU grow with what is used, unless the user chose otherwise.

    JAX would reserve three quarters of it before anything runs: two seconds for 100 GB, and no room
    for a second program on the same GPU. Call it before JAX is first used.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
