"""Seconds from process start until an evaluation reaches a return.

    python -m benchmarks.time_to_return ant=6000 humanoid=8000 [--quick] [-- --seed 1]

Everything counts: imports, compilation, evaluation, checkpoints. Each run is its own process; its
log is read from outside, and it is stopped when the return is reached, or after `--limit` seconds.
Cold: all caches of compiled programs are empty. Warm: the same command again, unless `--cold`
leaves it out. A short run precedes the first, so that disk reads are not measured: on a machine
that has just started, reading gigabytes of libraries takes seconds. `--add` keeps the results of
other goals and starts in the same folder; every row names its commit.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from jaxrl.config import presets
from jaxrl.errors import exit_status

QUICK = ["--epochs", "50", "--cycles", "1", *report.SMALL]


def time_run(
    preset: str, target: float, limit: float, caches: Path, folder: Path, extra: list[str]
) -> dict[str, Any]:
    """Train until `target`, the limit or the end; return times in seconds and the curve."""
    command = [sys.executable, "-m", "jaxrl.train", preset, "--run-dir", str(folder), *extra]
    env = os.environ | {"XDG_CACHE_HOME": str(caches)}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    log, metrics = folder.with_suffix(".txt"), folder / "metrics.jsonl"
    curve, first_cycle, reached, size, steps, stopped = [], None, None, 0, 0, False
    with log.open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
        while True:
            running = process.poll() is None
            now = time.monotonic() - began
            lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
            for line in lines[size:]:
                if not line.endswith("\n"):
                    break
                size, row = size + 1, json.loads(line)
                first_cycle = first_cycle or now
                if "eval/mean_reward" in row and reached is None:
                    steps = row["step"]
                    curve.append([round(now, 2), steps, row["eval/mean_reward"]])
                    if row["eval/mean_reward"] >= target:
                        reached = now
            if not running:
                break
            if not stopped and (reached is not None or now > limit):
                process.send_signal(signal.SIGTERM)
                stopped = True
            time.sleep(0.02)
    # A stopped run ends by itself; during its imports it dies of the signal.
    if process.returncode not in (0, *((128 + signal.SIGTERM, -signal.SIGTERM) if stopped else ())):
        print(log.read_text()[-3000:], file=sys.stderr)
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return {"seconds": reached, "first_cycle": first_cycle, "steps": steps, "curve": curve}


def read_libraries() -> None:
    """Train a little, so that the libraries' files are in memory."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "jaxrl.train", "fast", "--run-dir", f"{name}/run"]
        env = os.environ | {"XDG_CACHE_HOME": name}
        command += ["--epochs", "1", "--cycles", "1", *report.SMALL]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)


def measure(
    preset: str, target: float, starts: list[str], limit: float, extra: list[str]
) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for start in starts:
            result = time_run(preset, target, limit, folder / "cache", folder / start, extra)
            rows.append({"preset": preset, "target": target, "start": start} | result)
            print(_describe(rows[-1]), flush=True)
    return rows


def _describe(run: dict[str, Any]) -> str:
    """Return one run as text."""
    goal = f"{run['preset']}, {run['start']}: {run['target']:,.0f}"
    if run["seconds"] is None:
        best = max((point[2] for point in run["curve"]), default=None)
        return f"{goal} not reached" + ("" if best is None else f"; at best {best:,.0f}")
    return f"{goal} after {run['seconds']:.1f} s"


def _row(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "preset": run["preset"],
        "return": run["target"],
        "start": run["start"],
        "first log row, s": run["first_cycle"],
        "reached after, s": run["seconds"],
        "environment steps": run["steps"],
        "return then": run["curve"][-1][2] if run["curve"] else None,
        "commit": run["commit"],
    }


def merge(earlier: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return earlier and new runs; new ones replace those of the same goal and start."""

    def key(run: dict[str, Any]) -> tuple[str, float, str]:
        return run["preset"], run["target"], run["start"]

    merged = {key(run): run for run in [*earlier, *new]}
    order = list(dict.fromkeys((preset, target) for preset, target, _ in merged))
    return sorted(merged.values(), key=lambda run: (order.index(key(run)[:2]), run["start"]))


def draw(runs: list[dict[str, Any]]):
    # Relative to the target, unless a target is 0 or less.
    relative = all(run["target"] > 0 for run in runs)

    def on(axes):
        names = list(dict.fromkeys(run["preset"] for run in runs))
        for run in runs:
            unit = run["target"] / 100 if relative else 1.0
            points = [*([(0.0, 0, 0.0)] if relative else []), *run["curve"]]
            style = "-" if run["start"] == "warm" else "--"
            color = f"C{names.index(run['preset'])}"
            label = f"{run['preset']}, {run['start']}"
            times, heights = [point[0] for point in points], [point[2] / unit for point in points]
            axes.plot(times, heights, style, marker="o", color=color, label=label)
            axes.axhline(run["target"] / unit, color=report.GREY, linewidth=1)
        label = "return, % of target" if relative else "return"
        axes.set(xlabel="seconds since process start", ylabel=label)
        axes.set_xlim(left=0)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))

    return on


def goal(text: str) -> tuple[str, float]:
    """Read `preset=return`."""
    preset, _, target = text.partition("=")
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(target)):
            return preset, value
    raise argparse.ArgumentTypeError(f"write preset=return, as ant=6000, not '{text}'")


def read(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line; return our arguments and the flags of `jaxrl.train`."""
    parser = report.parser(__doc__)
    parser.add_argument("goals", nargs="*", type=goal, help="preset=return")
    parser.add_argument("--cold", action="store_true", help="no second, warm start")
    parser.add_argument("--add", action="store_true", help="keep other goals already in --out")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds for each run")
    # The flags after -- are cut off here: argparse would take them for goals.
    ours = words.index("--") if "--" in words else len(words)
    arguments, extra = parser.parse_known_args(words[:ours])
    return arguments, [*(QUICK if arguments.quick else []), *extra, *words[ours + 1 :]]


def main() -> None:
    arguments, extra = read(sys.argv[1:])
    goals = arguments.goals or ([("cartpole", 5.0)] if arguments.quick else [("ant", 6000.0)])
    for preset, _ in goals:
        presets.get(preset)
    starts = ["cold"] if arguments.cold else ["cold", "warm"]
    if not arguments.quick:
        read_libraries()
    runs = []
    for preset, target in goals:
        runs += measure(preset, target, starts, arguments.limit, extra)
    commit = report.machine()["commit"]  # initialises the device: not before all runs are done
    runs = [run | {"commit": commit, "flags": extra} for run in runs]
    path = arguments.out / "time_to_return.json"
    if arguments.add and path.exists():
        runs = merge(json.loads(path.read_text())["runs"], runs)
    rows = [_row(run) for run in runs]
    report.save("time_to_return", rows, arguments.out, panels=[draw(runs)], extra={"runs": runs})


if __name__ == "__main__":
    sys.exit(exit_status(main))
