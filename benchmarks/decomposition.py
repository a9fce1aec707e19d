"""How much of the performance of a dense reward is learned from episode returns alone.

    python -m benchmarks.decomposition halfcheetah hopper ant reacher --seeds 3 [--quick]

Five programs per task that differ in the reward that SAC learns from:

    dense       the environment's own reward of every step
    episodic    zero until the episode ends, then the sum
    ircr        the normalised return of the episode, at every step
    rrd         randomized return decomposition as published: a network trained by gradients
    regression  the same with --rrd.features quadratic: ridge regression gives most of the reward

The score of a learned reward is (kind − episodic) / (dense − episodic), of means over seeds at
equal steps: 0 is plain SAC on the sums, 1 is as good as the dense reward. The seeds of a kind are
one program; tasks and kinds run side by side. `--add` keeps the results of other tasks in the same
folder; every row names its commit.
"""

import json
import math
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.baselines import follow
from jaxrl.config import presets
from jaxrl.errors import exit_status
from jaxrl.utils import stats

_SUMS = ["--task.episodic-reward", "--offpolicy.reward"]
KINDS = {
    "dense": ["--task.no-episodic-reward", "--offpolicy.reward", "env"],
    "episodic": [*_SUMS, "env"],
    "ircr": [*_SUMS, "ircr"],
    "rrd": [*_SUMS, "rrd", "--rrd.features", "none", "--rrd.no-bias-correction"],
    "regression": [*_SUMS, "rrd", "--rrd.features", "quadratic", "--rrd.bias-correction"],
}
LEARNT = ("ircr", "rrd", "regression")
COLORS = dict(
    zip(KINDS, (report.GREY, report.ORANGE, "#8e5ea2", report.BLUE, "#3a9d5d"), strict=True)
)
QUICK = [
    *("--epochs", "1", "--cycles", "1", "--iterations", "20", "--num-envs", "4", "--devices", "1"),
    *("--task.episode-length", "10", "--offpolicy.warmup", "40", "--eval.num-envs", "4"),
    *("--offpolicy.train-batches", "2", "--offpolicy.batch-size", "16"),
    *("--rrd.batch-size", "16", "--rrd.sample-size", "4"),
]
# task -> kind -> seed -> [(steps, return)]
Curves = dict[str, dict[str, dict[str, list[tuple[int, float]]]]]


def preset(task: str) -> str:
    return task if task.startswith("rrd-") else f"rrd-{task}"


def run(task: str, kind: str, seeds: int, extra: list[str], on_row: Callable) -> None:
    """Train all seeds of one kind in one program; `on_row` is called with each evaluation."""
    command = [sys.executable, "-m", "benchmarks.seeds", preset(task)]
    command += ["--num-seeds", str(seeds), *KINDS[kind], *extra]
    follow(command, dict(os.environ), on_row)


def row(task: str, kinds: dict[str, dict[str, list]]) -> dict[str, Any]:
    """Return the table row of one task, at the last step that all of its runs reached."""
    steps = min(curve[-1][0] for runs in kinds.values() for curve in runs.values())
    finals = {
        kind: [[value for step, value in curve if step <= steps][-1] for curve in runs.values()]
        for kind, runs in kinds.items()
    }
    means = {kind: float(np.mean(values)) for kind, values in finals.items()}
    columns: dict[str, Any] = {
        "task": task,
        "seeds": min(len(values) for values in finals.values()),
        "million steps": steps / 1e6,
    }
    for kind in KINDS:
        if kind in finals:
            text = f"{means[kind]:,.0f} ± {np.std(finals[kind]):,.0f}"
            columns[kind] = stats.format_aggregate(means[kind], lambda _, text=text: text)
    gap = means.get("dense", math.nan) - means.get("episodic", math.nan)
    if math.isfinite(gap) and gap:
        for kind in [kind for kind in LEARNT if kind in means]:
            columns[f"{kind} score"] = (means[kind] - means["episodic"]) / gap
    return columns


def panel(task: str, kinds: dict[str, dict[str, list]]):
    def on(axes):
        for kind in [kind for kind in KINDS if kind in kinds]:
            for i, curve in enumerate(kinds[kind].values()):
                label = None if i else kind
                steps, returns = zip(*curve, strict=True)
                millions = [step / 1e6 for step in steps]
                axes.plot(millions, returns, color=COLORS[kind], label=label)
        axes.set(xlabel="million environment steps", ylabel="evaluated return", title=task)
        axes.legend(frameon=False, fontsize="small", ncols=2, loc="upper center")
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.3 * (high - low))  # room for the legend

    return on


def read_results(folder: Path, tasks: list[str]) -> tuple[Curves, dict[str, str]]:
    """Return the curves and commits of other tasks, from earlier calls."""
    path = folder / "decomposition.json"
    if not path.exists():
        return {}, {}
    document = json.loads(path.read_text())
    others = {task: kinds for task, kinds in document["curves"].items() if task not in tasks}
    return others, {task: document["commits"][task] for task in others}


def read_arguments() -> Any:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--at-once", type=int, help="programs side by side; all when not given")
    parser.add_argument("--add", action="store_true", help="keep other tasks already in --out")
    parser.add_argument("--extra", default="", help="flags for all runs, in one string")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.tasks = arguments.tasks or (["rrd-quick"] if quick else ["halfcheetah"])
    arguments.seeds = arguments.seeds or (1 if quick else 3)
    arguments.extra = [*(QUICK if quick else []), *str(arguments.extra).split()]
    for task in arguments.tasks:
        presets.get(preset(task))
    return arguments


def main() -> None:
    arguments = read_arguments()
    tasks = arguments.tasks
    jobs = [(task, kind) for task in tasks for kind in KINDS]
    curves, commits = read_results(arguments.out, tasks) if arguments.add else ({}, {})
    commits |= dict.fromkeys(tasks, report.machine()["commit"])
    lock = threading.Lock()

    def work(task: str, kind: str) -> None:
        def add(point: dict[str, Any]) -> None:
            returns = ", ".join(f"{value:,.0f}" for value in point["returns"])
            print(f"{task} {kind}, {point['step']:,} steps: {returns}", flush=True)
            with lock:
                by_seed = curves.setdefault(task, {}).setdefault(kind, {})
                for seed, value in enumerate(point["returns"]):
                    by_seed.setdefault(str(seed), []).append((point["step"], value))

        run(task, kind, arguments.seeds, arguments.extra, add)

    def save() -> None:
        with lock:
            rows = [row(task, kinds) | {"commit": commits[task]} for task, kinds in curves.items()]
            panels = [panel(task, kinds) for task, kinds in curves.items()]
            extra = {"curves": curves, "commits": commits}
            report.save("decomposition", rows, arguments.out, panels=panels, extra=extra)

    with ThreadPoolExecutor(arguments.at_once or len(jobs)) as threads:
        running = {threads.submit(work, *job): job for job in jobs}
        left = set(running)
        while left:
            ended, left = wait(left, timeout=60, return_when=FIRST_COMPLETED)
            for done in ended:
                if error := done.exception():
                    print(f"{' '.join(running[done])}: {error}", file=sys.stderr, flush=True)
            if curves:
                save()  # all points so far: a run may be stopped
    if failed := sum(done.exception() is not None for done in running):
        raise SystemExit(f"{failed} of {len(jobs)} programs failed.")


if __name__ == "__main__":
    sys.exit(exit_status(main))
