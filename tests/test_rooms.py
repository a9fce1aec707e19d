"""The import direction."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent / "jaxrl"

# A room may import itself and rooms before it. `envs.names` is plain strings, for the settings;
# `data.record`, `motion.convert`, `motion.inspect` and `motion.plan` are commands.
ORDER = [
    {"errors", "envs.names", "files", "host_memory", "npz", "statistics", "wording", "xla_flags"},
    {
        "config",
        "config_algorithms",
        "config_changes",
        "config_checks",
        "config_checks_motion",
        "config_checks_replay",
        "config_checks_values",
        "config_json",
        "presets",
        "types",
    },
    {"learning"},
    {"drawing"},
    {"networks", "envs", "data", "motion"},
    {"rollout"},
    {"algorithms"},
    {"reporting"},
    {"runtime"},
    {
        "train",
        "evaluate",
        "render",
        "report",
        "export",
        "callbacks",
        "data.record",
        "motion.convert",
        "motion.inspect",
        "motion.plan",
    },
]
# Within these limits `learning` is stricter still: it knows arrays and nothing else.
ONLY = {"learning": {"learning", "types"}}


def room_of(module: str) -> str:
    parts = module.split(".")[1:]
    apart = ".".join(parts[:2])
    return apart if any(apart in rooms for rooms in ORDER) else parts[0]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("jaxrl.")}


def test_imports_point_downwards():
    rank = {room: i for i, rooms in enumerate(ORDER) for room in rooms}
    wrong = []
    for path in ROOT.rglob("*.py"):
        if path.parent == ROOT and path.name == "__init__.py":
            continue  # the front door may open every room
        module = "jaxrl." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        here = room_of(module)
        assert here in rank, f"{path} is in no known room"
        for name in imports(path):
            there = room_of(name)
            allowed = there in ONLY[here] if here in ONLY else rank[there] <= rank[here]
            if not allowed:
                wrong.append(f"{module} imports {name}")
    assert not wrong
