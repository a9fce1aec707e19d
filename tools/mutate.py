"""Mutation testing: change one detail of the mathematics at a time and see a test fail.

    python tools/mutate.py                        every mutant of every module
    python tools/mutate.py --module learning.gae  one module
    python tools/mutate.py --sample 50 --seed 1   a random sample
    python tools/mutate.py --list                 only list the mutants

A mutant is killed when a test fails, and survives when all tests pass: then a test is missing, or
the change means nothing (EQUIVALENT says why). Everything runs on a temporary copy of package and
tests. Third-party packages are imported once; each mutant is tested in a fork of that process.
"""

import argparse
import ast
import compileall
import copy
import difflib
import fnmatch
import importlib
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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from mutate_equivalent import EQUIVALENT

ROOT = Path(__file__).resolve().parent.parent
ALGORITHMS = ["dqn", "method", "off_policy", "ppo_batch", "ppo_loss", "ppo_sampling", "ppo_update"]
ALGORITHMS += ["reward_only", "rewards", "sac", "style", "td3"]
# Tests of modules that have none of their own name alone, in the order in which they are run.
TESTS = {
    "learning.episodes": ["learning/test_replay.py", "algorithms/test_store.py"],
    "learning.minibatch": ["learning/test_minibatch.py", "learning/test_sampling.py"],
    "algorithms.dqn": ["algorithms/test_method.py", "algorithms/test_off_policy.py"],
    "algorithms.off_policy": [
        "algorithms/test_off_policy_step.py",
        "algorithms/test_off_policy.py",
    ],
    "algorithms.ppo_batch": ["algorithms/test_ppo_batch.py", "algorithms/test_ppo_update.py"],
    "algorithms.ppo_loss": ["algorithms/test_ppo_loss.py", "algorithms/test_ppo_update.py"],
    "algorithms.ppo_sampling": ["algorithms/test_ppo_update.py", "algorithms/test_ppo_segments.py"],
    "algorithms.ppo_update": ["algorithms/test_gradient_step.py", "algorithms/test_ppo_update.py"],
    "algorithms.reward_only": ["algorithms/test_rewards.py"],
    "algorithms.sac": ["algorithms/test_actor_losses.py"],
    "algorithms.td3": ["algorithms/test_actor_losses.py"],
}
# Imported once, before the first fork; none of them starts a JAX backend.
PRELOAD = (
    "jax.numpy flax.linen optax.contrib chex brax.envs scipy.stats pytest hypothesis.extra.numpy"
)

OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type, tuple[type, ...]] = {  # the opposite, then the boundary
    ast.Lt: (ast.GtE, ast.LtE),
    ast.Gt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Gt, ast.Lt),
    ast.GtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
FUNCTIONS = [("minimum", "maximum"), ("min", "max"), ("argmin", "argmax"), ("mean", "sum")]
CONFUSABLE = [
    ("obs", "next_obs"),
    ("terminated", "truncated"),
    ("value", "next_value"),
    ("params", "slow"),
    ("demo", "agent"),
    ("first", "end"),
    ("old", "new"),
]
OTHER = {a: b for pair in FUNCTIONS for a, b in (pair, pair[::-1])}
TWIN = {a: b for pair in CONFUSABLE for a, b in (pair, pair[::-1])}
DROPPED = {"stop_gradient", "abs", "square", "sqrt", "clip", "relu", "exp"}  # f(x, ...) -> x
TYPES_ONLY = {"zeros_like", "ones_like", "eval_shape"}  # what is given matters by its type alone
LIBRARIES = {"jax", "jnp", "optax", "chex", "struct", "nn"}


class Mutant(NamedTuple):
    """One change: the module's whole source with it, and the change as a diff."""

    module: str
    function: str
    source: str
    diff: str

    @property
    def line(self) -> str:
        """The changed lines, as EQUIVALENT names them."""
        added = [x[1:].strip() for x in self.diff.splitlines()[2:] if x.startswith("+")]
        return " ".join(added)


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, or ''."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def base_of(node: ast.expr) -> str:
    """Return the first part of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def with_(node: ast.AST, **fields) -> ast.AST:
    """Return a copy of a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def changes(node: ast.AST, names: set[str]) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node; `names` are those the function knows."""
    if isinstance(node, ast.BinOp):
        if type(node.op) in OPERATORS:
            yield with_(node, op=OPERATORS[type(node.op)]())
        if isinstance(node.op, ast.Mult | ast.BitAnd | ast.Div):
            yield node.left
        if isinstance(node.op, ast.Mult | ast.BitAnd) and not isinstance(node.left, ast.Constant):
            yield node.right
    elif isinstance(node, ast.UnaryOp):
        # Not −1 as an index or axis: it is shifted as the constant in it, and may well be 1 too.
        if not isinstance(getattr(node.operand, "value", None), int):
            yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield with_(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.Compare):
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield with_(node, ops=[other()])
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int):
            yield ast.Constant(node.value + 1)
        elif isinstance(node.value, float):
            yield ast.Constant(2 * node.value if node.value else 1.0)
    elif isinstance(node, ast.IfExp):
        yield with_(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        name = name_of(node)
        if isinstance(node, ast.Attribute):
            if name in OTHER and base_of(node) == "jnp":
                yield with_(node, attr=OTHER[name])
            elif name in TWIN and base_of(node) != "self":
                yield with_(node, attr=TWIN[name])
        elif TWIN.get(name) in names:
            yield with_(node, id=TWIN[name])
    elif isinstance(node, ast.Call):
        yield from call_changes(node)


def call_changes(node: ast.Call) -> Iterator[ast.AST]:
    """Yield calls with arguments swapped or left out, or what is called for."""
    name, args = name_of(node.func), node.args
    if name in DROPPED and args:
        yield args[0]
    if name == "where" and len(args) == 3:
        yield with_(node, args=[args[0], args[2], args[1]])
    elif len(args) > 1 and base_of(node.func) not in LIBRARIES:
        fixed = ast.Constant, ast.Tuple, ast.Starred
        if not isinstance(args[0], fixed) and not isinstance(args[1], fixed):
            yield with_(node, args=[args[1], args[0], *args[2:]])
    if name in ("replace", "_replace") and base_of(node.func) not in LIBRARIES:
        for i in range(len(node.keywords)):
            yield with_(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])


def statement_changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `pass` for a statement that only changes a name, and the opposite of an `if`."""
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if any(isinstance(x, ast.Name) and x.id == name for x in ast.walk(node.value)):
            yield ast.Pass()
    elif isinstance(node, ast.If) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node.test)


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over code that computes: no annotations, types, messages, shape checks or hints."""
    if isinstance(node, ast.Attribute) and node.attr in ("dtype", "ndim"):
        return
    if isinstance(node, ast.keyword) and node.arg in ("unroll", "precision", "dtype"):
        return
    yield node
    if isinstance(node, ast.Call) and base_of(node.func) == "chex":
        return
    types_only = isinstance(node, ast.Call) and name_of(node.func) in TYPES_ONLY
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if types_only and field == "args":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from nodes(child)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of a module with their names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            methods = (x for x in node.body if isinstance(x, ast.FunctionDef))
            yield from ((f"{node.name}.{x.name}", x) for x in methods)


def spliced(source: str, node: ast.expr | ast.stmt, new: ast.AST) -> str:
    """Return the source with other code in the place of a node."""
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:n])) for n in (node.lineno - 1, (node.end_lineno or 0) - 1)]
    begin, end = starts[0] + node.col_offset, starts[1] + (node.end_col_offset or 0)
    text = ast.unparse(new)
    code = text if isinstance(new, ast.stmt | ast.Name | ast.Attribute) else f"({text})"
    whole = source.encode()
    return (whole[:begin] + code.encode() + whole[end:]).decode()


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    source = (ROOT / "jaxrl" / f"{module.replace('.', '/')}.py").read_text()
    seen = {source}
    for name, function in functions(ast.parse(source)):
        known = {x.id for x in ast.walk(function) if isinstance(x, ast.Name)}
        known |= {x.arg for x in ast.walk(function) if isinstance(x, ast.arg)}
        for node in nodes(function):
            found = [(node, new) for new in changes(node, known)]
            place = node.test if isinstance(node, ast.If) else node
            found += [(place, new) for new in statement_changes(node)]
            for old, new in found:
                text = spliced(source, old, new)  # type: ignore[arg-type]
                if text in seen or ast.dump(ast.parse(text)) == ast.dump(ast.parse(source)):
                    continue
                seen.add(text)
                pair = source.splitlines(), text.splitlines()
                diff = "\n".join(list(difflib.unified_diff(*pair, lineterm="", n=0))[2:])
                yield Mutant(module, name, text, f"{module}.{name}\n{diff}")


def tests_of(module: str) -> list[str]:
    """Return the test files of a module."""
    package, name = module.split(".")
    return [f"tests/{x}" for x in TESTS.get(module, [f"{package}/test_{name}.py"])]


class _Reporter:
    """Notes the first test that fails; lets even the smallest program be cached."""

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
        warnings.simplefilter("ignore")  # of forking beside threads: no backend runs here
        pid = os.fork()
    if pid == 0:
        os.setsid()
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        import pytest

        options = "-x -q -p no:cacheprovider -p no:xdist --assert=plain -o addopts="
        options = [*options.split(), "-m", "not learning and not slow"]
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
    """Copy package and tests, compile them, and go there."""
    for name in ("jaxrl", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, invalidation_mode=mode)
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(folder)]
    os.environ["JAX_PLATFORMS"] = "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOAD.split():
            importlib.import_module(name)


def attempt(mutant: Mutant, killers: list[str], seconds: float) -> tuple[str, str]:
    """Test a mutant, by what killed its neighbours first; return its fate and the failed test."""
    path = Path("jaxrl") / f"{mutant.module.replace('.', '/')}.py"
    original = path.read_text()
    compiled = Path(importlib.util.cache_from_source(str(path)))
    compiled.unlink(missing_ok=True)
    path.write_text(mutant.source)
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
    """Test mutants one by one; those that `out` says were killed before are not tested again."""
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
            by = EQUIVALENT.get((mutant.module, mutant.line), "")
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
    """Print the survivors and a table of functions; return how many survived."""
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
    parser.add_argument("--sample", type=int, help="test only so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per mutant")
    parser.add_argument(
        "--json", type=Path, help="keep results here; what was killed is not tested again"
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
