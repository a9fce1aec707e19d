"""Settings that every test runs under. They must be made before JAX is first used."""

import gc
import os
from pathlib import Path

# Tracing makes many objects and few cycles: looking for these as often as Python does takes a
# tenth of the time.
gc.set_threshold(50_000)

os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Eight CPU devices, so that tests of several devices run in the ordinary test processes.
_COUNT = "--xla_force_host_platform_device_count"
if _COUNT not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_COUNT}=8".strip()
# Most of the time is spent compiling programs that run for a moment. XLA's older way to make
# kernels of fusions, and all of them in one piece, takes a quarter of the time; without what LLVM
# calls expensive, another fifth of it goes.
os.environ["XLA_FLAGS"] += (
    " --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)

# Tests replace parts of the code; a program traced without that must not stand in for them.
os.environ.setdefault("JAXRL_KEEP_PROGRAMS", "0")
# Programs with MuJoCo's loops may hang otherwise (jaxrl.runtime.builder says why).
os.environ["XLA_FLAGS"] += " --xla_cpu_multi_thread_eigen=false"

import jax  # noqa: E402

# Shapes that only match by adding leading axes are nearly always mistakes.
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compiled programs are shared by the workers and kept for the next run.
_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
