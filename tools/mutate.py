"""Mutation testing: change one detail of the mathematics at a time; a test must fail.

    python tools/mutate.py                        every mutant of every module
    python tools/mutate.py --module learning.gae  one module
    python tools/mutate.py --sample 50 --seed 1   a random sample
    python tools/mutate.py --list                 only list the mutants

A mutant is killed when a test fails, and survives when all tests pass: then a test is missing, or
the mutant is equivalent (see EQUIVALENT in mutations.py). Everything runs on a temporary copy of
package and tests. Third-party packages are imported once; each mutant is tested in a fork of that
process.
"""

import argparse
import compileall
import fnmatch
import gc
import importlib.util
import json
import os
import py_compile
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from mutations import ROOT, Mutant, excuse, mutants_of

ALGORITHMS = ["amp", "policy", "ppo.batch", "ppo.loss", "ppo.update"]
ALGORITHMS += ["on_policy.algorithm", "on_policy.pqn", "on_policy.reppo"]
ALGORITHMS += [
    f"off_policy.{n}"
    for n in ("algorithm", "base", "bc", "dqn", "iql", "offline", "reward_model", "sac", "td3")
]
# Test files of modules that need other files than the one of their name, in the order they run.
TESTS = {
    "learning.episode_index": [
        "learning/test_replay_buffer.py",
        "algorithms/off_policy/test_replay.py",
    ],
    "algorithms.policy": ["algorithms/on_policy/test_pqn.py", "algorithms/off_policy/test_base.py"],
    "learning.minibatch": ["learning/test_minibatch.py", "learning/test_prioritized_sampling.py"],
} | {
    f"algorithms.{package}.{name}": [f"algorithms/{package}/test_{test}.py" for test in tests]
    for package, modules in {
        "ppo": {
            "batch": ["batch", "update"],
            "loss": ["loss", "update"],
            "update": ["update_step", "update_sampling", "update", "segments"],
        },
        "on_policy": {"algorithm": ["reppo", "pqn", "reppo_probes"], "reppo": ["reppo"]},
        "off_policy": {
            "bc": ["offline"],
            "dqn": ["base", "learning"],
            "iql": ["offline"],
            "offline": ["reward_model", "offline"],
            "algorithm": ["algorithm", "learning"],
            "sac": ["actor_losses"],
            "td3": ["actor_losses"],
        },
    }.items()
    for name, tests in modules.items()
}
# Imported once, before the first fork; none of them starts a JAX backend.
PRELOAD = (
    "jax.numpy flax.linen optax.contrib chex brax.envs scipy.stats pytest hypothesis.extra.numpy"
)


def tests_of(module: str) -> list[str]:
    """Return the test files of a module."""
    package, _, name = module.rpartition(".")
    own = f"{package.replace('.', '/')}/test_{name}.py"
    return [f"tests/{x}" for x in TESTS.get(module, [own])]


class _Reporter:
    """Writes the id of the failed test to a file; caches even the smallest programs."""

    def __init__(self, path: Path):
        self.path = path

    def pytest_collection_finish(self) -> None:
        import jax

        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.path.write_text(report.nodeid)


def run_tests(tests: list[str], seconds: float) -> tuple[str, str, float]:
    """Run tests in a fork; return ("killed" | "survived" | "timed out", failed test, seconds)."""
    note, log, start = Path("failed.txt"), Path("log.txt"), time.monotonic()
    note.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about forking with threads: no backend runs here
        pid = os.fork()
    if pid == 0:
        os.setsid()
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        import pytest

        options = "-x -q -p no:cacheprovider -p pytest_timeout --assert=plain -o addopts="
        options = [*options.split(), "-m", "not learning"]
        os._exit(pytest.main([*options, *tests], plugins=[_Reporter(note)]))
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() - start > seconds:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "timed out", "", time.monotonic() - start
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(done[1])
    if code == 5:
        raise SystemExit(f"no tests in {tests}")
    failed = note.read_text() if note.exists() else ""
    return ("survived" if code == 0 else "killed"), failed, time.monotonic() - start


def prepare(folder: Path) -> None:
    """Copy package and tests, compile them, and change into the copy."""
    for name in ("jaxrl", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, invalidation_mode=mode)
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(folder)]
    os.environ |= {"JAX_PLATFORMS": "cpu", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOAD.split():
            importlib.import_module(name)
    from hypothesis import Phase, settings

    # One counterexample is enough: shrinking it takes a hundred times as long as finding it.
    settings.register_profile("mutate", phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutate")
    gc.freeze()  # otherwise the first collection of every fork copies the heap


def attempt(mutant: Mutant, killers: list[str], seconds: float) -> tuple[str, str]:
    """Test a mutant, first by tests that killed similar ones; return its fate and failed test."""
    path = Path("jaxrl") / f"{mutant.module.replace('.', '/')}.py"
    original = path.read_text()
    compiled = Path(importlib.util.cache_from_source(str(path)))
    compiled.unlink(missing_ok=True)
    path.write_text(mutant.source)
    fate, failed = "survived", ""
    try:
        for tests in (killers[:2], tests_of(mutant.module)):
            if tests:
                fate, failed, _ = run_tests(tests, seconds)
                if fate != "survived":
                    break
    finally:
        path.write_text(original)
    if failed in killers:
        killers.remove(failed)
    if failed:
        killers.insert(0, failed)
    return fate, failed


def test_all(mutants: list[Mutant], seconds: float, out: Path | None) -> list[dict]:
    """Test mutants one by one, except those already killed according to `out`."""
    before = json.loads(out.read_text()) if out and out.exists() else []
    results = {row["diff"]: row for row in before if row["fate"] == "killed"}
    killers: dict[str, list[str]] = {}
    for row in results.values():
        killers.setdefault(f"{row['module']}.{row['function']}", [])[:0] = [row["by"]]
    ready: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutate") as folder:
        prepare(Path(folder).resolve())
        for i, mutant in enumerate(mutants):
            if mutant.diff in results:
                continue
            by = excuse(mutant)
            fate = "equivalent" if by else ""
            if not fate and mutant.module not in ready:
                fate, failed, took = run_tests(tests_of(mutant.module), seconds)
                if fate != "survived":
                    print(Path("log.txt").read_text())
                    raise SystemExit(f"{fate} without any mutation: {failed}")
                print(f"{mutant.module}: its tests take {took:.1f} s", flush=True)
                ready.add(mutant.module)
                fate = ""
            if not fate:
                known = killers.setdefault(f"{mutant.module}.{mutant.function}", [])
                fate, by = attempt(mutant, known, seconds)
            row = {"module": mutant.module, "function": mutant.function, "line": mutant.line}
            results[mutant.diff] = row | {"diff": mutant.diff, "fate": fate, "by": by}
            if fate in ("survived", "timed out"):
                print(f"{i + 1}/{len(mutants)} {fate}: {mutant.diff}", flush=True)
            if out:
                out.write_text(json.dumps(list(results.values()), indent=1))
        os.chdir(ROOT)
    return [results[mutant.diff] for mutant in mutants]


def report(results: list[dict]) -> int:
    """Print the survivors and a table of functions; return the number of survivors."""
    for row in results:
        if row["fate"] in ("survived", "timed out"):
            print(f"\n{row['fate']}: {row['diff']}")
    table: dict[str, Counter] = {}
    for row in results:
        table.setdefault(f"{row['module']}.{row['function']}", Counter())[row["fate"]] += 1
    fates = ("killed", "survived", "timed out", "equivalent")
    print(f"\n{'function':48}" + "".join(f"{fate:>12}" for fate in fates))
    for name, counts in table.items():
        print(f"{name:48}" + "".join(f"{counts[fate] or '':>12}" for fate in fates))
    total = Counter(row["fate"] for row in results)
    print(f"{'total':48}" + "".join(f"{total[fate]:>12}" for fate in fates))
    return total["survived"] + total["timed out"]


def main() -> None:
    """Make mutants, test them, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", action="append", help="e.g. learning.gae; may be repeated")
    parser.add_argument("--function", default="*", help="a function, or a pattern of names")
    parser.add_argument("--sample", type=int, help="number of mutants to test, sampled at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per mutant")
    parser.add_argument(
        "--json", type=Path, help="file of results; mutants already killed are not tested again"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants, test nothing")
    args = parser.parse_args()
    learning = sorted(p.stem for p in (ROOT / "jaxrl/learning").glob("[a-z]*.py"))
    every = [f"learning.{x}" for x in learning] + [f"algorithms.{x}" for x in ALGORITHMS]
    chosen = [m for m in every if not args.module or m in args.module]
    if args.module and len(chosen) != len(set(args.module)):
        raise SystemExit(f"unknown module among {args.module}; known: {', '.join(every)}")
    mutants = [
        m for x in chosen for m in mutants_of(x) if fnmatch.fnmatch(m.function, args.function)
    ]
    if args.sample and args.sample < len(mutants):
        picked = sorted(random.Random(args.seed).sample(range(len(mutants)), args.sample))
        mutants = [mutants[i] for i in picked]
    if args.list:
        print("\n".join(m.diff for m in mutants))
        print(f"{len(mutants)} mutants")
        return
    results = test_all(mutants, args.timeout, args.json and args.json.resolve())
    if report(results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
