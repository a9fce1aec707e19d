"""Settings of all tests, made before JAX is first used."""

import functools
import gc
import os
import threading
from pathlib import Path

# Tracing makes many objects and few cycles: at its default threshold, garbage collection takes a
# tenth of the time.
gc.set_threshold(50_000)

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from jaxrl.utils import xla_flags  # noqa: E402

xla_flags.add(
    # Tests on several devices run in the same processes as the others.
    xla_force_host_platform_device_count=8,
    # Most of the time is spent compiling programs that run for a moment. Without optimisation,
    # LLVM's expensive passes and fusion emitters, with each program in one piece, it takes a
    # quarter of the time; XLA's own preset saves another sixth.
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
os.environ.setdefault("JAXRL_KEEP_PROGRAMS", "0")
import jax  # noqa: E402
import pytest  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from tyro import _docstrings  # noqa: E402

# Implicit rank promotion is nearly always a mistake.
jax.config.update("jax_numpy_rank_promotion", "raise")

# Every command line makes tyro tokenise the source of all settings, which does not change.
_make = _docstrings._ClassTokenization.make.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
_docstrings._ClassTokenization.make = staticmethod(functools.cache(_make))

# JAX makes an MLIR context for every program, which takes ten milliseconds: longer than the rest of
# lowering for the thousands of programs that are a single operation. One per thread is enough.
_make_context, _contexts = mlir.make_ir_context, threading.local()


def _shared_context():
    if not hasattr(_contexts, "context"):
        _contexts.context = _make_context()
    return _contexts.context


mlir.make_ir_context = _shared_context

# Compiled programs are cached for all workers and for the next run.
_TESTS = Path(__file__).resolve().parent
_CACHE = _TESTS.parent / ".cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

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
    """Mark the slow tests."""
    for item in items:
        file = item.path.relative_to(_TESTS.parent)
        fixtures = {f"{file}::{name}" for name in getattr(item, "fixturenames", ())}
        if f"{file}::{item.name.partition('[')[0]}" in _SLOW or fixtures & _SLOW_FIXTURES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def shared_programs():
    """Share compiled programs between runs with the same settings, across test files."""
    from jaxrl.programs import device, offline
    from tests.helpers import sharing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "compile_programs", sharing.compile_once)
        patch.setattr(offline.OfflineExecutor, "wait", sharing.wait_once)
        yield


@pytest.fixture(scope="module")
def no_plots():
    """Leave out the plots at the end of a run: they take a third of the time of a tiny run."""
    from jaxrl.policies import reward_files
    from jaxrl.reports import plots

    with pytest.MonkeyPatch.context() as patch:
        for name in ("learning_curve", "learning_phases", "population_curve"):
            patch.setattr(plots, name, lambda *_: None)
        patch.setattr(reward_files, "_draw", lambda *_: None)
        yield
