"""Policies from recorded data: behaviour cloning, TD3+BC and IQL, from rewards and from returns.

    python -m benchmarks.offline hopper ant --seeds 3 [--data mixed] [--only iql bc] [--quick]

For each task PPO is trained to the end (expert) and for a part of that (medium), and episodes are
recorded by `python -m jaxrl.record`:

    random   uniformly random actions
    medium   the medium policy, with up to 30 % random actions
    expert   the expert's policy with up to 10 % random actions
    mixed    a third of the episodes from each of these

`--add` keeps results that are already in --out and runs only what is missing there. It keeps none
of a recording that was made again from other policies.

Policies are then trained from each recording, with the recorded rewards (dense), with rewards that
RRD learns from the episodes' returns (rrd), and with each return given at the end (sum). Scores are
0 for random actions and 100 for the expert's policy.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.baselines import follow
from jaxrl.config import presets
from jaxrl.data import hdf5
from jaxrl.errors import UserError, exit_status, nearest
from jaxrl.loggers.sinks import read_jsonl

# Environment steps of the medium policy; the expert is the preset.
TASKS = {
    "pendulum": 200_000,
    "hopper": 8_000_000,
    "halfcheetah": 8_000_000,
    "ant": 8_000_000,
}
NOISE = {
    "random": ("expert", ["1"]),
    "medium": ("medium", ["0", "0.1", "0.2", "0.3"]),
    "expert": ("expert", ["0", "0.05", "0.1"]),
}
MIXED = "mixed"
DATA = (*NOISE, MIXED)
EPISODES = 400
REWARDS = {
    "dense": [],
    "rrd": [
        *("--task.episodic-reward", "--offpolicy.reward", "rrd", "--rrd.features", "quadratic"),
        *("--rrd.bias-correction", "--rrd.batch-size", "1024", "--rrd.sample-size", "128"),
    ],
    "sum": ["--task.episodic-reward"],
}
METHODS = {"bc": ["dense"], "td3-bc": list(REWARDS), "iql": list(REWARDS)}
COLORS = {"bc": report.GREY, "td3-bc": report.ORANGE, "iql": report.BLUE}
QUICK = [
    *("--epochs", "1", "--cycles", "1", "--iterations", "2", "--offpolicy.train-batches", "4"),
    *("--offpolicy.batch-size", "16", "--network.hidden", "8", "--network.critic-hidden", "8"),
    *("--eval.num-envs", "4", "--task.episode-length", "20"),
]
_LAST = 3  # evaluations whose mean is the result: policies of recorded data vary between epochs
# What a task's values need, whatever the method (as in the presets of SAC).
SETTINGS = {"hopper": ["--offpolicy.gamma", "0.997"]}
# task -> data -> "method reward" -> returns of the seeds
Results = dict[str, dict[str, dict[str, list[float]]]]
# task -> data -> returns of the expert and of random actions, as they were when it was recorded
Ends = dict[str, dict[str, dict[str, float]]]


def _run(module: str, *words: str) -> None:
    """Run one of our commands; show its output if it fails."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def prepare(task: str, kinds: list[str], folder: Path, quick: bool) -> dict[str, float]:
    """Train the behaviour policies and record them; return the returns of expert and random."""
    folder.mkdir(parents=True, exist_ok=True)
    small = [*report.SMALL, "--epochs", "1", "--cycles", "1", "--task.episode-length", "20"]
    number = 12 if quick else EPISODES

    def train(name: str) -> None:
        if not (folder / name).exists():
            more = ["--total-steps", str(TASKS[task])] if name == "medium" else []
            more = small if quick else more
            _run("jaxrl.train", task, "--run-dir", str(folder / name), *more)

    recordings = [(kind, folder / f"{kind}.hdf5", number) for kind in {*kinds, "random"} - {MIXED}]
    if MIXED in kinds:
        recordings += [(k, folder / MIXED / f"{k}.hdf5", number // len(NOISE)) for k in NOISE]
    with ThreadPoolExecutor() as threads:
        list(threads.map(train, ("expert", "medium")))
        list(threads.map(lambda one: _record(folder, *one), recordings))
    log = read_jsonl(folder / "expert" / "metrics.jsonl")
    expert = max(row["eval/mean_reward"] for row in log if "eval/mean_reward" in row)
    returns = [hdf5.read(ref).reward.sum() for ref in hdf5.list_episodes(folder / "random.hdf5")]
    return {"expert": expert, "random": float(np.mean(returns))}


def _record(folder: Path, kind: str, out: Path, episodes: int) -> None:
    policy, noise = NOISE[kind]
    if not out.exists():
        words = [str(folder / policy), "--out", str(out), "--noise", *noise]
        _run("jaxrl.record", *words, "--episodes", str(episodes))


def score(value: float, ends: dict[str, float]) -> float:
    """Return 0 for random actions and 100 for the expert."""
    return 100 * (value - ends["random"]) / (ends["expert"] - ends["random"])


def rows_of(results: Results, ends: Ends) -> list[dict[str, Any]]:
    """Return a row for each task and recording: mean score ± standard deviation over seeds."""
    rows = []
    for task, by_data in results.items():
        for data, found in by_data.items():
            row: dict[str, Any] = {"task": task, "data": data}
            for method, rewards in METHODS.items():
                for reward in rewards:
                    name = f"{method} {reward}" if len(rewards) > 1 else method
                    if f"{method} {reward}" in found:
                        each = [score(v, ends[task][data]) for v in found[f"{method} {reward}"]]
                        row[name] = f"{np.mean(each):.0f} ± {np.std(each):.0f}"
            rows.append(row)
    return rows


def panel(data: str, results: Results, ends: Ends):
    """Return a panel with the mean scores of all tasks, by method and reward."""
    tasks = [task for task in results if data in results[task]]
    names = [f"{method} {reward}" for method, rewards in METHODS.items() for reward in rewards]

    def on(axes):
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            method, reward = name.split()
            heights = [
                np.mean(
                    [score(v, ends[task][data]) for v in results[task][data].get(name, [np.nan])]
                )
                for task in tasks
            ]
            places = np.arange(len(tasks)) + (i - len(names) / 2 + 0.5) * width
            hatch = {"dense": "", "rrd": "///", "sum": "..."}[reward]
            label = method if len(METHODS[method]) == 1 else name
            axes.bar(
                places, heights, width, color=COLORS[method], hatch=hatch, label=label, ec="white"
            )
        axes.set_xticks(range(len(tasks)), tasks)
        axes.axhline(100, color=report.GREY, linewidth=1)
        axes.set(ylabel="score (expert 100)", title=f"{data} data")
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.08)}
        axes.legend(frameon=False, fontsize="small", ncols=4, **below)

    return on


def read_arguments() -> Any:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--data", nargs="+", choices=list(DATA))
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--rewards", nargs="+", choices=list(REWARDS), default=list(REWARDS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--at-once", type=int, default=4, help="programs side by side")
    parser.add_argument("--folder", type=Path, help="keep policies and recordings here")
    parser.add_argument("--add", action="store_true", help="keep other results already in --out")
    parser.add_argument("--extra", default="", help="flags for all runs, in one string")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.tasks = arguments.tasks or (["pendulum"] if quick else list(TASKS))
    arguments.data = arguments.data or ([MIXED] if quick else list(DATA))
    arguments.seeds = arguments.seeds or (1 if quick else 3)
    arguments.extra = [*(QUICK if quick else []), *str(arguments.extra).split()]
    for task in arguments.tasks:
        if task not in TASKS:
            raise UserError(f"Unknown task '{task}'.{nearest(task, TASKS)} Known: {list(TASKS)}.")
    return arguments


def main() -> None:
    arguments = read_arguments()
    path = arguments.out / "offline.json"
    earlier = json.loads(path.read_text()) if arguments.add and path.exists() else {}
    results: Results = earlier.get("returns", {})
    ends: Ends = earlier.get("ends", {})
    lock = threading.Lock()

    def train(task: str, data: str, method: str, reward: str, folder: Path) -> None:
        last: list[dict[str, Any]] = []
        path = folder / (data if data == MIXED else f"{data}.hdf5")
        words = [method, "--env", task, "--data.path", str(path)]
        if backend := presets.get(task).backend:
            words += ["--backend", backend]
        words += SETTINGS.get(task, []) if method != "bc" else []
        words += [*REWARDS[reward], "--num-seeds", str(arguments.seeds), *arguments.extra]
        command = [sys.executable, "-m", "benchmarks.seeds", *words]
        follow(command, dict(os.environ), last.append)
        with lock:
            returns = np.mean([row["returns"] for row in last[-_LAST:]], axis=0).tolist()
            results[task][data][f"{method} {reward}"] = returns
            scores = ", ".join(f"{score(value, ends[task][data]):.0f}" for value in returns)
            print(f"{task} {data} {method} {reward}: {scores}", flush=True)
            save()

    def save() -> None:
        rows = rows_of(results, ends)
        kinds = [kind for kind in DATA if any(kind in found for found in results.values())]
        panels = [panel(kind, results, ends) for kind in kinds]
        extra = {"returns": results, "ends": ends}
        report.save("offline", rows, arguments.out, panels=panels, extra=extra)

    with (
        tempfile.TemporaryDirectory() as place,
        ThreadPoolExecutor(arguments.at_once) as threads,
    ):
        root = arguments.folder or Path(place)
        made = {
            task: threads.submit(prepare, task, arguments.data, root / task, arguments.quick)
            for task in arguments.tasks
        }
        jobs = []
        for task, preparing in made.items():
            found = preparing.result()
            print(f"{task}: {found}", flush=True)
            for data in arguments.data:
                if ends.get(task, {}).get(data) != found:  # made again, from other policies
                    ends.setdefault(task, {})[data] = found
                    results.setdefault(task, {})[data] = {}
            for data, method, reward in itertools.product(
                arguments.data, arguments.only, arguments.rewards
            ):
                done = f"{method} {reward}" in results[task][data]
                if reward in METHODS[method] and not done:
                    job = (task, data, method, reward, root / task)
                    jobs.append(threads.submit(train, *job))
        for job in jobs:
            job.result()


if __name__ == "__main__":
    sys.exit(exit_status(main))
