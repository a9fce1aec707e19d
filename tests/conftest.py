"""Settings of all tests, made before JAX is first used."""

import gc
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jaxrl.utils import xla_flags

xla_flags.add(
    # Tests on several devices run in the same processes as the others.
    xla_force_host_platform_device_count=8,
    # Most of the time is spent compiling programs that run for a moment. Without optimisation,
    # LLVM's expensive passes and fusion emitters, with each program in one piece, it takes a
    # quarter of the time; XLA's own preset saves another sixth. The emitters cannot be switched
    # off from JAX 0.12 on, where compiling takes 2.5 times as long.
    xla_cpu_opt_preset="FAST_COMPILE",
    xla_backend_optimization_level=0,
    xla_llvm_disable_expensive_passes=True,
    xla_cpu_use_fusion_emitters=False,
    xla_cpu_parallel_codegen_split_count=1,
    # XLA's CPU thread pool may deadlock in the loops of MuJoCo's solver: see
    # jaxrl.utils.xla_options.
    xla_cpu_multi_thread_eigen=False,
)

# Tests patch parts of the code: programs traced without the patch must not come from the cache.
os.environ.setdefault("JAXRL_CACHE_PROGRAMS", "0")
import jax  # noqa: E402
import pytest  # noqa: E402

from tests.helpers import faster  # noqa: E402, F401

# Implicit rank promotion is nearly always a mistake.
jax.config.update("jax_numpy_rank_promotion", "raise")

_TESTS = Path(__file__).resolve().parent
jax.config.update("jax_compilation_cache_dir", str(_TESTS.parent / ".cache" / "jax"))
# Reading a compiled program from JAX's cache takes as long as compiling it without optimisation,
# and writing it takes longer.
jax.config.update("jax_enable_compilation_cache", False)

# Test functions that `make check` leaves out; `make slow-tests` measures them again.
_SLOW = frozenset((_TESTS / "slow_tests.txt").read_text().split())
# Fixtures that compile for five seconds or more: whichever test uses one first is slow.
_SLOW_FIXTURES = frozenset(
    {
        "tests/envs/tasks/test_imitation.py::play",
        "tests/envs/test_randomize.py::rollout",
        "tests/evaluation/test_analysis.py::run",
        "tests/studies/test_studies.py::folder",
        "tests/motion/test_mppi.py::planned",
        "tests/programs/test_offline.py::trained",
        "tests/training/test_population.py::ppo",
        "tests/training/test_streaming.py::long",
        "tests/utils/test_sharding.py::runs",
    }
)


def pytest_collection_finish() -> None:
    """Leave what the imports made, which stays until the end, out of garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests; begin with those of several processes, which take longest."""
    items.sort(key=lambda item: item.get_closest_marker("multiprocess") is None)
    for item in items:
        file = item.path.relative_to(_TESTS.parent)
        fixtures = {f"{file}::{name}" for name in getattr(item, "fixturenames", ())}
        if f"{file}::{item.name.partition('[')[0]}" in _SLOW or fixtures & _SLOW_FIXTURES:
            item.add_marker(pytest.mark.slow)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After a file of tests, drop compiled programs before they exhaust the memory maps.

    Each program has several maps. Linux allows a process 65,530, and XLA crashes without more: the
    whole suite came that far with JAX 0.12.
    """
    maps = Path("/proc/self/maps")
    ends = nextitem is None or nextitem.path != item.path
    if ends and maps.exists() and len(maps.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def shared_programs():
    """Share compiled programs between runs with the same settings, across test files."""
    from tests.helpers import sharing

    with pytest.MonkeyPatch.context() as patch:
        sharing.share_programs(patch)
        yield


@pytest.fixture(scope="module")
def no_plots():
    """Leave out the plots at the end of a run."""
    from tests.helpers import sharing

    with pytest.MonkeyPatch.context() as patch:
        sharing.leave_out_plots(patch)
        yield
