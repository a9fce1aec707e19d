"""The output of every benchmark: a printed table, JSON and a plot in a folder."""

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = Path("runs", "benchmarks")
PACKAGES = ("jax", "jaxlib", "brax", "mujoco-mjx", "flax", "optax", "stable-baselines3", "torch")
# Flags of --quick for `python -m jaxrl.train`, of any algorithm; and of PPO: 256 steps in a cycle.
SMALL_RUN = shlex.split(
    "--devices 1 --iterations 2 --num-envs 16 --eval.num-envs 4 --network.hidden 8 "
    "--network.critic-hidden 8 --task.episode-length 20"
)
SMALL = [*SMALL_RUN, *shlex.split("--ppo.rollout-length 8 --ppo.num-minibatches 2")]
BLUE, GREY, ORANGE = "#1f4e79", "#9aa5b1", "#d9822b"


class _Parser(argparse.ArgumentParser):
    def parse_known_args(self, *arguments: Any, **more: Any) -> Any:
        """Choose the folder of results: quick ones never replace measured ones."""
        parsed, others = super().parse_known_args(*arguments, **more)
        parsed.out = parsed.out or (QUICK_RESULTS if parsed.quick else RESULTS)
        return parsed, others


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags of all benchmarks."""
    parser = _Parser(description=(doc or "").split("\n")[0])
    folders = f"benchmarks/results by default, or with --quick {QUICK_RESULTS}"
    parser.add_argument("--out", type=Path, help=f"folder for JSON and plots; {folders}")
    parser.add_argument("--quick", action="store_true", help="a small task, for two cores")
    return parser


def machine() -> dict[str, Any]:
    """Return hardware, versions and commit."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "devices": _devices(),
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit() -> str:
    """Return the commit; on a machine without the repository's history, its caller names it."""
    if named := os.environ.get("BENCHMARK_COMMIT"):
        return named
    changed = " and changes" if _git("status", "--short", "--", "jaxrl", "benchmarks") else ""
    return _git("rev-parse", "--short", "HEAD") + changed


def _devices() -> list[str]:
    """Return the kinds of devices, without reserving their memory."""
    import jax

    from jaxrl.utils import xla_flags

    xla_flags.allocate_as_needed()  # read when JAX initialises its devices

    return [device.device_kind for device in jax.local_devices()]


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()
    except (OSError, subprocess.SubprocessError):
        return ""


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table; columns in the order they first appear."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(row.get(name)) for name in columns) + " |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _command(module: str) -> str:
    """Return the command line without --out."""
    words = list(sys.argv[1:])
    if "--out" in words:
        index = words.index("--out")
        del words[index : index + 2]
    return " ".join([f"python -m benchmarks.{module}", *map(shlex.quote, words)])


def save(
    name: str,
    rows: list[dict[str, Any]],
    out: Path,
    *,
    module: str | None = None,
    panels: list[Callable[[Any], None]],
    extra: dict[str, Any] | None = None,
) -> None:
    """Print the table; write NAME.json, and NAME.png with one panel per plotting function."""
    out.mkdir(parents=True, exist_ok=True)
    data = {"command": _command(module or name), "machine": machine(), "rows": rows} | (extra or {})
    (out / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    _plot(out / f"{name}.png", panels)
    print("\n" + table(rows), flush=True)


def _plot(path: Path, panels: list[Callable[[Any], None]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = 1 if len(panels) <= 3 else max(2, -(-len(panels) // 5))
    columns = -(-len(panels) // rows)
    scale = 1 if rows <= 2 else 0.6
    size = (max(7, 5 * columns * scale), 4 * rows * scale)
    figure, places = plt.subplots(rows, columns, figsize=size, dpi=120, squeeze=False)
    for axes in places.flat[len(panels) :]:
        axes.axis("off")
    for axes, draw in zip(places.flat, panels, strict=False):
        draw(axes)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
