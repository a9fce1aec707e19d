"""jaxrl and a baseline library on the same machine, each in its own processes.

    python -m benchmarks.baselines brax ant humanoid --seeds 5
    python -m benchmarks.baselines sb3 cartpole pendulum --seeds 5  (pip install -e '.[baselines]')

brax: PPO, or SAC where that is what brax publishes for the task, on the physics backend of our
preset. sb3: stable-baselines3's PPO on the Gymnasium version of our task, on the CPU.
Every run begins with empty caches; with --warm only the first seed of a system does.
`--side-by-side` runs all of them concurrently: runs share one GPU, so compare times only with each
other; rates of such runs are left out, and they are drawn over steps. `--add` keeps the runs of
earlier calls in the same folder and adds what is missing: more seeds, other tasks, or with `--only`
one of the two systems; if nothing is missing, it draws the plots again. Every row names the commits
of its runs.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import report
from jaxrl.config import presets
from jaxrl.errors import exit_status, install
from jaxrl.utils import stats

QUICK = ["--epochs", "1", "--cycles", "10", *report.SMALL]
# task -> system -> seed -> its evaluations
Curves = dict[str, dict[str, dict[str, list[dict[str, float]]]]]
Commits = dict[str, dict[str, dict[str, str]]]


def follow(
    command: list[str],
    env: dict[str, str],
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """Run a command that prints JSON lines; return them with their arrival times in seconds.

    `on_row` is called with each line as it arrives.
    """
    rows, began = [], time.monotonic()
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as run,
    ):
        for line in run.stdout or []:
            if line.startswith("{"):
                rows.append(json.loads(line) | {"seconds": time.monotonic() - began})
                on_row(rows[-1])
        run.wait()
        wall = time.monotonic() - began
        if run.returncode or not rows:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{errors.read()[-3000:]}")
    rows[-1]["wall"] = wall
    return rows


def run_jaxrl(
    task: str, seed: int, caches: Path, place: Path, quick: bool
) -> list[dict[str, float]]:
    """Train our preset; return its evaluations with the names of the baselines."""
    folder = place / f"{task}-{seed}-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "jaxrl.train", task, "--run-dir", str(folder)]
    command += ["--seed", str(seed), *(QUICK if quick else [])]
    began = time.monotonic()
    done = subprocess.run(command, env=_environment(caches), capture_output=True, text=True)
    wall = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rate = median(row["time/fps"] for row in logged)
    # Time before the run's clock started and after it stopped counts as start-up.
    before = wall - logged[-1]["time/time_elapsed"]
    rows = [
        {
            "steps": row["step"],
            "return": row["eval/mean_reward"],
            "std": row["eval/std_reward"],
            "steps/s": rate,
            "seconds": before + row["time/time_elapsed"],
        }
        for row in logged
        if "eval/mean_reward" in row
    ]
    rows[-1]["wall"] = wall
    return rows


def run_baseline(
    baseline: str, task: str, seed: int, caches: Path, quick: bool
) -> list[dict[str, float]]:
    """Train the baseline and print every evaluation."""

    def print_row(row: dict[str, float]) -> None:
        text = f"{row['return']:,.0f} after {row['steps']:,.0f} steps, {row['seconds']:,.0f} s"
        print(f"{task} {baseline} seed {seed}: {text}", flush=True)

    command = [sys.executable, "-m", f"benchmarks.{baseline}_worker", task, "--seed", str(seed)]
    if baseline == "brax" and (backend := presets.get(task).backend):
        command += ["--backend", backend]
    if quick:
        command += ["--steps", "2000", "--evals", "2"]
    return follow(command, _environment(caches), print_row)


def _environment(caches: Path) -> dict[str, str]:
    """Return an environment whose compilation caches lie in `caches`."""
    own = {"XDG_CACHE_HOME": str(caches), "JAX_COMPILATION_CACHE_DIR": str(caches / "jax")}
    return os.environ | own


def ran_alone(runs: list[list[dict[str, float]]]) -> bool:
    """Return whether none of these runs shared the machine."""
    return not any("concurrent_runs" in run[-1] for run in runs)


def summarize(task: str, system: str, runs: list[list[dict[str, float]]]) -> dict[str, Any]:
    finals = [run[-1]["return"] for run in runs]
    ends = stats.iqm_interval(np.array(finals))
    low, high = (stats.format_aggregate(float(end), lambda x: f"{x:,.0f}") for end in ends)
    row: dict[str, Any] = {
        "task": task,
        "system": system,
        "seeds": len(runs),
        "final return, IQM": float(stats.interquartile_mean(np.array(finals))),
        "95 % interval": f"{low} to {high}",
        "million steps": runs[0][-1]["steps"] / 1e6,
    }
    if ran_alone(runs):
        row["steps/s"] = median(run[-1]["steps/s"] for run in runs)
        row["wall, s"] = median(run[-1]["wall"] for run in runs)
    return row


def time_to_reach(run: list[dict[str, float]], target: float) -> float | None:
    """Return the seconds until an evaluation reached `target`, or None."""
    return next((row["seconds"] for row in run if row["return"] >= target), None)


def run_all(arguments: Any, curves: Curves, save: Callable[[Curves], None]) -> None:
    """Run every seed of both systems on every task; call `save` after every run."""
    jobs = [
        (task, system, str(seed))
        for task in arguments.tasks
        for system in ([arguments.only] if arguments.only else ["jaxrl", arguments.baseline])
        for seed in range(arguments.seeds)
    ]
    jobs = [(t, system, n) for t, system, n in jobs if n not in curves.get(t, {}).get(system, {})]
    if not jobs:
        return save(curves)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)

        def work(job: tuple[str, str, str]) -> list[dict[str, float]]:
            task, system, seed = job
            caches = place / (f"{task}-{system}" if arguments.warm else f"{task}-{system}-{seed}")
            if system == "jaxrl":
                run = run_jaxrl(task, int(seed), caches, place, arguments.quick)
            else:
                run = run_baseline(system, task, int(seed), caches, arguments.quick)
            if arguments.side_by_side:
                run[-1]["concurrent_runs"] = len(jobs)
            return run

        with ThreadPoolExecutor(len(jobs) if arguments.side_by_side else 1) as threads:
            running = {threads.submit(work, job): job for job in jobs}
            for done in as_completed(running):
                task, system, seed = running[done]
                if error := done.exception():
                    print(f"{task} {system} seed {seed}: {error}", file=sys.stderr, flush=True)
                    continue
                curves.setdefault(task, {}).setdefault(system, {})[seed] = done.result()
                save(curves)
                final = done.result()[-1]["return"]
                print(f"{task} {system} seed {seed}: {final:,.0f}", flush=True)
    if failed := sum(done.exception() is not None for done in running):
        raise SystemExit(f"{failed} of {len(jobs)} runs failed.")


def compare(baseline: str, task: str, systems: dict[str, list], warm: bool) -> list[dict[str, Any]]:
    """Return the rows of one task."""
    rows = [summarize(task, system, runs) for system, runs in systems.items()]
    if baseline not in systems:
        return rows
    finals = np.array([run[-1]["return"] for run in systems[baseline]])
    target = float(stats.interquartile_mean(finals))
    for row, runs in zip(rows, systems.values(), strict=True):
        times = [time_to_reach(run, target) for run in runs]
        column = f"s until {baseline}'s IQM" + ("" if ran_alone(runs) else ", concurrent runs")
        if warm:
            row[f"{column}, first start"] = times.pop(0)
            column += ", later starts"
        reached = [seconds for seconds in times if seconds is not None]
        row[column] = median(reached) if reached and len(reached) == len(times) else None
    return rows


def sort_runs(by_system: dict[str, dict[str, list]]) -> dict[str, list]:
    """Return the runs of each system by seed, jaxrl first."""
    names = sorted(by_system, key=lambda name: name != "jaxrl")
    return {name: [by_system[name][n] for n in sorted(by_system[name], key=int)] for name in names}


def add_commits(commits: Commits, curves: Curves, commit: str) -> None:
    """Set the commit of every run that has none."""
    for task, systems in curves.items():
        for system, runs in systems.items():
            by_seed = commits.setdefault(task, {}).setdefault(system, {})
            for seed in runs:
                by_seed.setdefault(seed, commit)


def read_results(path: Path) -> tuple[Curves, Commits]:
    """Return the curves and commits of earlier calls."""
    if not path.exists():
        return {}, {}
    document = json.loads(path.read_text(encoding="utf-8"))
    commits = document.get("commits", {})
    add_commits(commits, document["curves"], document["machine"]["commit"])
    return document["curves"], commits


def panel(task: str, systems: dict[str, list]):
    """Return a plot of all seeds of both systems: over seconds if all of them ran alone."""
    unit = "seconds" if all(map(ran_alone, systems.values())) else "steps"
    meaning = {"seconds": "seconds since process start", "steps": "environment steps"}

    def on(axes):
        for system, runs in systems.items():
            color = report.BLUE if system == "jaxrl" else report.ORANGE
            for i, run in enumerate(runs):
                x = [row[unit] for row in run]
                y = [row["return"] for row in run]
                label, mark = None if i else system, "o" if len(run) == 1 else None
                axes.plot(x, y, color=color, linewidth=1.5, label=label, marker=mark)
        axes.set(xlabel=meaning[unit])
        axes.set(ylabel="evaluated return", title=task)
        axes.legend(frameon=False)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("baseline", choices=["brax", "sb3"])
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--warm", action="store_true", help="let runs share compilation caches")
    parser.add_argument("--side-by-side", action="store_true", help="run all concurrently, untimed")
    parser.add_argument("--add", action="store_true", help="keep the runs already in --out")
    parser.add_argument("--only", help="run only this system")
    arguments = parser.parse_args()
    if arguments.only not in (None, "jaxrl", arguments.baseline):
        parser.error(f"--only is jaxrl or {arguments.baseline}, not {arguments.only}")
    if arguments.baseline == "sb3" and not importlib.util.find_spec("stable_baselines3"):
        raise SystemExit(f"stable-baselines3 is missing: {install('baselines')}")
    arguments.seeds = arguments.seeds or (1 if arguments.quick else 5)
    defaults = {"brax": ("fast", "ant"), "sb3": ("cartpole", "cartpole")}[arguments.baseline]
    arguments.tasks = arguments.tasks or [defaults[0] if arguments.quick else defaults[1]]
    for task in arguments.tasks:
        presets.get(task)
    name = f"baselines-{arguments.baseline}"
    curves, commits = read_results(arguments.out / f"{name}.json") if arguments.add else ({}, {})

    def save(curves: Curves) -> None:
        rows, panels = [], []
        add_commits(commits, curves, report.machine()["commit"])
        for task, by_system in curves.items():
            systems = sort_runs(by_system)
            for row in compare(arguments.baseline, task, systems, arguments.warm):
                names = sorted(set(commits[task][row["system"]].values()))
                rows.append(row | {"commit": ", ".join(names)})
            panels.append(panel(task, systems))
        extra = {"curves": curves, "commits": commits}
        report.save(name, rows, arguments.out, module="baselines", panels=panels, extra=extra)

    run_all(arguments, curves, save)


if __name__ == "__main__":
    sys.exit(exit_status(main))
