"""XLA flags, set only where the installed jaxlib is known to have them.

XLA reads XLA_FLAGS when it is first used, and ends the process at a flag that it does not know.
Every flag that jaxrl or its tests set is listed here with the jaxlib versions that were tried with
it. `tests/utils/test_xla_flags.py` tries those of the installed version.
"""

import os
from importlib.metadata import version

_Release = tuple[int, int]
# The first and the last jaxlib that were tried with a flag.
_TRIED: dict[str, tuple[_Release, _Release]] = {
    # On CPUs, physics with loops of unknown length (MuJoCo's solver) can end with every thread
    # idle, waiting for a result that nobody computes: nearly always with a thousand environments.
    # The same option of a single program does not cure it. Training was no slower without it.
    "xla_cpu_enable_concurrency_optimized_scheduler": ((0, 10), (0, 12)),
    # The rest is for tests: many devices, quick compilation, no hanging.
    "xla_force_host_platform_device_count": ((0, 10), (0, 12)),
    "xla_backend_optimization_level": ((0, 10), (0, 12)),
    "xla_llvm_disable_expensive_passes": ((0, 10), (0, 12)),
    "xla_cpu_use_fusion_emitters": ((0, 10), (0, 10)),
    "xla_cpu_parallel_codegen_split_count": ((0, 10), (0, 12)),
    "xla_cpu_multi_thread_eigen": ((0, 10), (0, 12)),
}


def known(jaxlib: str) -> list[str]:
    """Return the flags of the table that a jaxlib version is known to have."""
    release = tuple(map(int, jaxlib.split(".")[:2]))
    return [name for name, (first, last) in _TRIED.items() if first <= release <= last]


def add(**flags: object) -> None:
    """Append flags to XLA_FLAGS, but for those the user set and those jaxlib may not know.

    Call it before JAX is first used: `add(xla_cpu_multi_thread_eigen=False)`.
    """
    present = os.environ.get("XLA_FLAGS", "").split()
    taken = {part.split("=")[0].lstrip("-") for part in present}
    usable = set(known(version("jaxlib"))) - taken
    present += [f"--{name}={str(flags[name]).lower()}" for name in flags if name in usable]
    os.environ["XLA_FLAGS"] = " ".join(present)
