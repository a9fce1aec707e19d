"""How much of what a dense reward teaches can be learnt from the return of whole episodes.

    python -m benchmarks.decomposition halfcheetah hopper ant reacher --seeds 3 [--quick]

Three programs for every task, alike but for the reward: the environment's own (dense),
nothing until the end and then the sum (episodic), and rewards decomposed from those sums (rrd).
The score is (rrd − episodic) / (dense − episodic), of means over seeds at equal steps: 0 is plain
SAC on the sums, 1 is as good as if every reward had been told. The seeds of a kind are one program;
tasks and kinds go side by side.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from benchmarks import report

KINDS = {
    "dense": ["--offpolicy.reward", "env", "--task.no-episodic-reward"],
    "episodic": ["--offpolicy.reward", "env", "--task.episodic-reward"],
    "rrd": ["--offpolicy.reward", "rrd", "--task.episodic-reward"],
}
COLORS = {"dense": report.GREY, "episodic": report.ORANGE, "rrd": report.BLUE}
QUICK = [
    *("--epochs", "1", "--cycles", "1", "--iterations", "20", "--num-envs", "4", "--devices", "1"),
    *("--task.episode-length", "10", "--offpolicy.warmup", "40", "--eval.num-envs", "4"),
    *("--train-batches", "2", "--batch-size", "16"),
    *("--rrd-batch-size", "16", "--rrd-sample-size", "4"),
]
# task -> kind -> seed -> [(steps, return)]
Curves = dict[str, dict[str, dict[str, list[tuple[int, float]]]]]


def preset(task: str) -> str:
    return task if task.startswith("rrd-") else f"rrd-{task}"


def run(task: str, kind: str, seeds: int, extra: list[str]) -> dict[str, list]:
    """Train all seeds of one kind in one program; return their evaluations."""
    command = [sys.executable, "-m", "benchmarks.seeds", preset(task)]
    command += ["--num-seeds", str(seeds), *KINDS[kind], *extra]
    # Many runs share one device: none may take all of its memory.
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed:\n{done.stdout[-500:]}{done.stderr[-2000:]}"
        )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {str(i): [(r["step"], r["returns"][i]) for r in rows] for i in range(seeds)}


def row(task: str, kinds: dict[str, dict[str, list]]) -> dict[str, Any]:
    finals = {kind: [curve[-1][1] for curve in runs.values()] for kind, runs in kinds.items()}
    means = {kind: float(np.mean(values)) for kind, values in finals.items()}
    found: dict[str, Any] = {
        "task": task,
        "seeds": min(len(values) for values in finals.values()),
        "million steps": next(iter(next(iter(kinds.values())).values()))[-1][0] / 1e6,
    }
    for kind in KINDS:
        if kind in finals:
            found[kind] = f"{means[kind]:,.0f} ± {np.std(finals[kind]):,.0f}"
    if means.keys() == KINDS.keys() and means["dense"] != means["episodic"]:
        gap = means["dense"] - means["episodic"]
        found["score"] = (means["rrd"] - means["episodic"]) / gap
    return found


def panel(task: str, kinds: dict[str, dict[str, list]]):
    def on(axes):
        for kind, runs in kinds.items():
            for i, curve in enumerate(runs.values()):
                label = None if i else kind
                axes.plot(*zip(*curve, strict=True), color=COLORS[kind], label=label)
        axes.set(xlabel="environment steps", ylabel="evaluated return", title=task)
        axes.legend(frameon=False)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--at-once", type=int, help="programs side by side; all when not given")
    parser.add_argument("--extra", default="", help="flags for all runs, in one string")
    arguments = parser.parse_args()
    tasks = arguments.tasks or (["rrd-quick"] if arguments.quick else ["halfcheetah"])
    seeds = arguments.seeds or (1 if arguments.quick else 3)
    extra = [*(QUICK if arguments.quick else []), *str(arguments.extra).split()]
    jobs = [(task, kind) for task in tasks for kind in KINDS]
    curves: Curves = {}

    def keep() -> None:
        rows = [row(task, kinds) for task, kinds in curves.items()]
        panels = [panel(task, kinds) for task, kinds in curves.items()]
        report.save("decomposition", rows, arguments.out, panels=panels, extra={"curves": curves})

    with ThreadPoolExecutor(arguments.at_once or len(jobs)) as threads:
        running = {threads.submit(run, *job, seeds, extra): job for job in jobs}
        for done in as_completed(running):
            task, kind = running[done]
            if error := done.exception():
                print(f"{task} {kind}: {error}", file=sys.stderr, flush=True)
                continue
            curves.setdefault(task, {})[kind] = done.result()
            keep()


if __name__ == "__main__":
    main()
