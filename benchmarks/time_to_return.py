"""Seconds from process start until a policy was measured to reach a return.

    python -m benchmarks.time_to_return ant=6000 humanoid=8000 [--quick] [-- --seed 1]

Everything counts: imports, compilation, evaluation, checkpoints. Each run is a process of its
own; it is watched through its log from outside, and asked to stop when the return is reached, or
after `--limit` seconds. Cold: all caches of compiled programs are empty. Warm: the same command
once more, unless `--cold` leaves it out. A short run goes before the first, so that no disk is
measured: on a machine just started, reading some gigabytes of libraries takes seconds of its own.
`--add` keeps what an earlier call left in the same place of other goals and starts; every row says
of which commit it is.
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


def watch(
    preset: str, target: float, limit: float, caches: Path, folder: Path, extra: list[str]
) -> dict[str, Any]:
    """Train until `target`, the limit or the end; return when what was seen, in seconds."""
    command = [sys.executable, "-m", "jaxrl.train", preset, "--run-dir", str(folder), *extra]
    env = os.environ | {"XDG_CACHE_HOME": str(caches)}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    log, metrics = folder.with_suffix(".txt"), folder / "metrics.jsonl"
    curve, first_cycle, reached, size, steps, asked = [], None, None, 0, 0, False
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
            if not asked and (reached is not None or now > limit):
                process.send_signal(signal.SIGTERM)
                asked = True
            time.sleep(0.02)
    # Asked to stop, a run ends by itself; one that had only begun to import dies of it.
    if process.returncode not in (0, *((128 + signal.SIGTERM, -signal.SIGTERM) if asked else ())):
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
        place = Path(name)
        for start in starts:
            seen = watch(preset, target, limit, place / "cache", place / start, extra)
            rows.append({"preset": preset, "target": target, "start": start} | seen)
            print(_said(rows[-1]), flush=True)
    return rows


def _said(run: dict[str, Any]) -> str:
    """Return one run in words."""
    what = f"{run['preset']}, {run['start']}: {run['target']:,.0f}"
    if run["seconds"] is None:
        best = max((point[2] for point in run["curve"]), default=None)
        return f"{what} not reached" + ("" if best is None else f"; at best {best:,.0f}")
    return f"{what} after {run['seconds']:.1f} s"


def _row(seen: dict[str, Any]) -> dict[str, Any]:
    return {
        "preset": seen["preset"],
        "return": seen["target"],
        "start": seen["start"],
        "first log row, s": seen["first_cycle"],
        "reached after, s": seen["seconds"],
        "environment steps": seen["steps"],
        "return then": seen["curve"][-1][2] if seen["curve"] else None,
        "commit": seen["commit"],
    }


def together(earlier: list[dict[str, Any]], seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return earlier runs with these in the place of those of the same goal and start."""

    def of(run: dict[str, Any]) -> tuple[str, float, str]:
        return run["preset"], run["target"], run["start"]

    found = {of(run): run for run in earlier} | {of(run): run for run in seen}
    order = list(dict.fromkeys((preset, target) for preset, target, _ in found))
    return sorted(found.values(), key=lambda run: (order.index(of(run)[:2]), run["start"]))


def draw(seen: list[dict[str, Any]]):
    # A return of 0 or less has no shares: then returns are drawn as they are.
    shares = all(run["target"] > 0 for run in seen)

    def on(axes):
        names = list(dict.fromkeys(run["preset"] for run in seen))
        for run in seen:
            unit = run["target"] / 100 if shares else 1.0
            points = [*([(0.0, 0, 0.0)] if shares else []), *run["curve"]]
            style = "-" if run["start"] == "warm" else "--"
            color = f"C{names.index(run['preset'])}"
            label = f"{run['preset']}, {run['start']}"
            times, heights = [point[0] for point in points], [point[2] / unit for point in points]
            axes.plot(times, heights, style, marker="o", color=color, label=label)
            axes.axhline(run["target"] / unit, color=report.GREY, linewidth=1)
        label = "return, % of target" if shares else "return"
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
    """Read the command line; return what is ours, and the flags of `jaxrl.train`."""
    parser = report.parser(__doc__)
    parser.add_argument("goals", nargs="*", type=goal, help="preset=return")
    parser.add_argument("--cold", action="store_true", help="no second, warm start")
    parser.add_argument("--add", action="store_true", help="keep other goals already in --out")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds for each run")
    # What follows is cut off here: argparse would take it for goals.
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
    seen = []
    for preset, target in goals:
        seen += measure(preset, target, starts, arguments.limit, extra)
    commit = report.machine()["commit"]  # wakes the device: not before all runs are done
    seen = [run | {"commit": commit, "flags": extra} for run in seen]
    path = arguments.out / "time_to_return.json"
    if arguments.add and path.exists():
        seen = together(json.loads(path.read_text())["runs"], seen)
    rows = [_row(run) for run in seen]
    report.save("time_to_return", rows, arguments.out, panels=[draw(seen)], extra={"runs": seen})


if __name__ == "__main__":
    sys.exit(exit_status(main))
