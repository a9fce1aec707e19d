"""A package imports only itself and packages at or below its layer."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent / "jaxrl"

ORDER = [
    {"errors", "types", "utils"},
    {"config"},
    {"learning"},
    {"physics"},
    {"networks", "motion"},
    {"envs", "data"},
    {"rollout"},
    {"algorithms"},
    {"evaluation", "policies"},
    {"programs", "checkpoint", "loggers", "rendering"},
    {"reports"},
    {"callbacks"},
    {"training"},
    {
        "train",
        "evaluate",
        "render",
        "report",
        "export",
        "record",
        "clips",
        "presets",
        "studies",
        "launch",
        "zoo",
    },
    {"completion", "__main__"},
]
# `learning` is stricter: functions of arrays that import no other package.
ONLY = {"learning": {"learning", "types"}}


def package_of(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("jaxrl.")}


def test_imports_follow_the_layers():
    rank = {package: i for i, packages in enumerate(ORDER) for package in packages}
    wrong = []
    for path in ROOT.rglob("*.py"):
        if path.parent == ROOT and path.name == "__init__.py":
            continue  # exports from every package
        module = "jaxrl." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        here = package_of(module)
        assert here in rank, f"{path} is in no known package"
        for name in imports(path):
            there = package_of(name)
            allowed = there in ONLY[here] if here in ONLY else rank[there] <= rank[here]
            if not allowed:
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(sorted(wrong))
