"""The mutants of `mutate.py`: one changed detail in the source of a function.

Signs, operators, factors, constants, comparisons, masks, indices and axes, the order of arguments,
easily confused names, dropped calls (stop_gradient, clip, square, ...) and dropped assignments.
"""

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

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
    ("params", "target_params"),
    ("demo", "agent"),
    ("first", "end"),
    ("old", "new"),
]
OTHER = {a: b for pair in FUNCTIONS for a, b in (pair, pair[::-1])}
TWIN = {a: b for pair in CONFUSABLE for a, b in (pair, pair[::-1])}
DROPPED = {"stop_gradient", "abs", "square", "sqrt", "clip", "relu", "exp"}  # f(x, ...) -> x
TYPES_ONLY = {
    "zeros_like",
    "ones_like",
    "eval_shape",
    "structure",
}  # only the type of the argument matters
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
    """Yield replacements of a node; `names` are known names, with a leading dot for attributes."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.left, ast.Tuple):
            return  # a shape
        if type(node.op) in OPERATORS:
            yield with_(node, op=OPERATORS[type(node.op)]())
        if isinstance(node.op, ast.Mult | ast.BitAnd | ast.Div):
            yield node.left
        if isinstance(node.op, ast.Mult | ast.BitAnd) and not isinstance(node.left, ast.Constant):
            yield node.right
    elif isinstance(node, ast.UnaryOp):
        # Not -1 as an index or axis: its constant is mutated instead, and 1 may be equivalent.
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
            elif f".{TWIN.get(name)}" in names:
                yield with_(node, attr=TWIN[name])
        elif TWIN.get(name) in names:
            yield with_(node, id=TWIN[name])
    elif isinstance(node, ast.Call):
        yield from call_changes(node)


def call_changes(node: ast.Call) -> Iterator[ast.AST]:
    """Yield calls with swapped or dropped arguments, or an argument in place of the call."""
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
    """Yield `pass` for a statement that updates a name, and the negated condition of an `if`."""
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if any(isinstance(x, ast.Name) and x.id == name for x in ast.walk(node.value)):
            yield ast.Pass()
    elif isinstance(node, ast.If) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node.test)


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over nodes that compute; skip annotations, types, messages, shape checks and hints."""
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
    """Return the source with a node replaced."""
    lines = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:n])) for n in (node.lineno - 1, (node.end_lineno or 0) - 1)]
    begin, end = starts[0] + node.col_offset, starts[1] + (node.end_col_offset or 0)
    text = ast.unparse(new)
    code = text if isinstance(new, ast.stmt | ast.Name | ast.Attribute) else f"({text})"
    whole = source.encode()
    return (whole[:begin] + code.encode() + whole[end:]).decode()


def diff_of(source: str, text: str) -> str:
    """Return the lines that differ, as a diff without context."""
    old, new = source.splitlines(), text.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    last = next(i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b)
    removed, added = old[first : len(old) - last], new[first : len(new) - last]
    size = f",{len(removed)}" if len(removed) > 1 else ""
    head = f"@@ -{first + 1}{size} +{first + 1} @@"
    return "\n".join([head, *(f"-{x}" for x in removed), *(f"+{x}" for x in added)])


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    source = (ROOT / "jaxrl" / f"{module.replace('.', '/')}.py").read_text()
    seen, tree = {source}, ast.parse(source)
    fields = ast.walk(ast.parse((ROOT / "jaxrl/types.py").read_text()))
    attributes = {f".{x.target.id}" for x in fields if isinstance(x, ast.AnnAssign)}  # type: ignore
    attributes |= {f".{x.attr}" for x in ast.walk(tree) if isinstance(x, ast.Attribute)}
    for name, function in functions(tree):
        known = attributes | {x.id for x in ast.walk(function) if isinstance(x, ast.Name)}
        known |= {x.arg for x in ast.walk(function) if isinstance(x, ast.arg)}
        for node in nodes(function):
            found = [(node, new) for new in changes(node, known)]
            place = node.test if isinstance(node, ast.If) else node
            found += [(place, new) for new in statement_changes(node)]
            for old, new in found:
                text = spliced(source, old, new)  # type: ignore[arg-type]
                if text not in seen and ast.unparse(old) != ast.unparse(new):
                    seen.add(text)
                    yield Mutant(module, name, text, f"{module}.{name}\n{diff_of(source, text)}")


def excuse(mutant: Mutant) -> str:
    """Return why no test could kill a mutant, or ''."""
    reasons = EQUIVALENT.get(mutant.module, {})
    return next((why for part, why in reasons.items() if part in mutant.diff), "")


# Mutants that no test can detect: module -> part of the diff -> reason.
EQUIVALENT = {
    "learning.losses": {
        "jnp.where(varies, spread, (2.0))": "in the branch that the outer `where` discards",
    },
    "learning.td": {
        "jnp.clip(near, 0.0, (2.0))": "`near` is never above 1",
    },
    "learning.normalizer": {
        "jnp.mean(leaf) for leaf": "a mean is finite where its sum is",
        "leaf = leaf.astype(jnp.float32)\n+        pass": "type promotion gives float32 anyway",
    },
    "learning.replay_buffer": {
        "ring.written[(1)]": "all rows are written equally often",
    },
    "learning.episode_index": {
        "scores, -(2.0))": "any number below the scores",
        "(oldest >= index.first)": "if equal, the first after `first` is `first` itself",
        "jnp.maximum(index.first, oldest)": "`oldest` is past both",
        "(nth <= stored[:, None])": "an unused slot",
        "complete = (first >= oldest)": "nothing reads the entry of an episode before its end",
        "index.age.shape[-(2)], index.current_age": "any age above 0 is before the ring",
    },
    "learning.distributions": {
        "(mean - jnp.exp(log_std) * jax.random.normal(": "the noise is symmetric",
        "log_det_tanh((mean - jnp.exp(log_std) * noise))": "the noise is symmetric",
        "choice.shape) <= params[..., -1])": "a sample equals the probability once in 2²³ times",
    },
    "learning.reward_regression": {
        "lower=(False)": "either triangle of a symmetric matrix has the same solution",
        "(_product(fit.mean, weights))": "a dot product is symmetric",
    },
    "algorithms.off_policy.dqn": {
        "axis=-1)[:, (1)]": "JAX clamps an index past the end to the last",
    },
    "algorithms.off_policy.base": {
        "probs[0], probs[(2)])": "JAX clamps an index past the end to the last",
    },
    "algorithms.ppo.batch": {
        "floor) - 1e-08))": "far below any std except 0, where x - mean is 0",
        "floor) + (2e-08))": "far below any std except 0, where x - mean is 0",
    },
    "algorithms.ppo.update": {
        "ended: Array = steps.truncated | steps.truncated": "a terminated step has no successor",
        "num_rows // num_shards), (2.0))": "a factor common to all rows changes no sample",
        "(keys, (probs * probs.shape[1])": "a factor common to all rows changes no sample",
        "(keys, probs, number), ()": "a factor common to all rows changes no sample",
        "return (VTraceCache(value, ratio))": "minibatches are sampled outside of the loss",
        "(stopped / 1.0)": "a factor of 1",
        "step.grad_norm, stopped, ": "stacked with floats, a bool becomes one",
        "(~step.finite / 1.0)": "a factor of 1",
        "(~step.finite)])": "stacked with floats, a bool becomes one",
    },
    "algorithms.ppo.loss": {
        "lambda leaf: leaf[(1)]": "JAX clamps an index past the end to the last",
        "l2_to_initial(learner.initial_params, params)": "a squared distance is symmetric",
        "value_loss(batch.target, value)": "a squared distance is symmetric",
    },
    "algorithms.amp": {
        "optimizer.adam(1.0, (2e-08))": "far below the values it is added to",
        'name="head")(x)[..., (1)]': "JAX clamps an index past the end to the last",
        "x[None])[(1)]": "JAX clamps an index past the end to the last",
        "((jax.random.uniform(key_mix, (number, 1)) >= 0.5))": "the other half of a uniform sample",
        "((jax.random.uniform(key_mix, (number, 1)) <= 0.5))": "exactly 0.5 is one sample in 2²³",
        "(min(len(fresh.rows), max(rows // 16, 1)))": "a minimum is symmetric",
        "jnp.zeros(((2), self.size))": "parameters do not depend on the number of examples",
    },
}
