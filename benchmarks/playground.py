"""MuJoCo Playground: returns of the presets over steps and seconds, beside published ones.

    python -m benchmarks.playground dmc --seeds 3
    python -m benchmarks.playground dmc --seeds 3 --name reppo --beside playground -- --algo reppo
    python -m benchmarks.playground CheetahRun WalkerRun --at-once 2 -- --ppo.gamma 0.99

Names are tasks, or the suites dmc, locomotion and manipulation. All seeds of a task are one program
in a process of its own. Tasks run one after the other; with --at-once several share the device, and
their seconds can only be compared with each other. Everything counts in these: imports, compiling,
evaluations, checkpoints.

Runs stay in --folder, runs/benchmarks/playground by default. A benchmark that was interrupted
continues where it stopped, by the same command; tasks that are finished there are read, not trained
again. `--add` keeps the results of other tasks that are already in --out. `--beside` shows those of
another name in the table and in the plots.

Published: PPO after 100 million steps, as SLM-Lab lists it. The means that REPPO's authors report,
of 23 tasks of dmc, are 596 for brax's PPO and 775 for REPPO.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import learning_curves, report
from benchmarks.learning_curves import Curve, aggregate, at
from jaxrl.config import env_names, presets
from jaxrl.errors import UserError, exit_status, nearest

SUITES = {
    "dmc": env_names.DM_CONTROL,
    "locomotion": env_names.LOCOMOTION,
    "manipulation": env_names.MANIPULATION,
}
RUNS = Path("runs", "benchmarks")
MILLIONS = (10, 30, 50, 60)
_COMPARED = 50  # million steps of results that are shown beside others
PUBLISHED = {
    "AcrobotSwingup": 253,
    "BerkeleyHumanoidJoystickFlatTerrain": 32.3,
    "CartpoleSwingup": 729,
    "CheetahRun": 883,
    "FishSwim": 581,
    "Go1Getup": 18.2,
    "HopperHop": 22,
    "HumanoidWalk": 47,
    "LeapCubeReorient": 74.7,
    "SpotFlatTerrainJoystick": 48.6,
    "WalkerRun": 760,
    "WalkerWalk": 945,
}
# Of dmc, REPPO's authors leave these out.
NOT_IN_REPPO = ("PointMass", "SwimmerSwimmer6")


def preset_of(task: str) -> str:
    """Return the preset that a task trains."""
    return f"playground:{task}"


def beside(rows: list[dict[str, Any]], name: str, others: dict[str, Curve]) -> None:
    """Add a column with the returns of other results to rows."""
    column = f"{name}, {_COMPARED} M"
    for row in rows_of(others):
        for ours in rows:
            if ours["task"] == row["task"]:
                ours[column] = row.get(f"{_COMPARED} M")


def rows_of(curves: dict[str, Curve]) -> list[dict[str, Any]]:
    """Return a row for each task, and one for the means of what REPPO's authors report."""
    rows = []
    for task, curve in sorted(curves.items()):
        row: dict[str, Any] = {"task": task, "seeds": len(curve.returns[-1])}
        for millions in MILLIONS:
            found = at(curve, millions * 1e6)
            row[f"{millions} M"] = None if found is None else aggregate(found)
        row["end"] = aggregate(curve.returns[-1])
        row["M steps"] = round(curve.steps[-1] / 1e6)
        row["seconds"] = round(curve.seconds[-1])
        row["published"] = PUBLISHED.get(task)
        rows.append(row)
    return [*rows, *_means(curves)]


def _means(curves: dict[str, Curve]) -> Iterator[dict[str, Any]]:
    """Yield rows with the means over tasks, for dmc once all of its tasks are there."""
    listed = [task for task in env_names.DM_CONTROL if task not in NOT_IN_REPPO]
    if not set(listed) <= curves.keys():
        return
    for name, mean in (("mean of 23", np.mean), ("IQM of 23", _flat_iqm)):
        row: dict[str, Any] = {"task": name}
        for millions in MILLIONS:
            found = [at(curves[task], millions * 1e6) for task in listed]
            if None not in found:
                row[f"{millions} M"] = float(mean(np.asarray(found)))
        row["end"] = float(mean(np.asarray([curves[task].returns[-1] for task in listed])))
        row["seconds"] = round(sum(curves[task].seconds[-1] for task in listed))
        yield row


def _flat_iqm(returns: np.ndarray) -> float:
    return aggregate(returns.ravel().tolist())


def panel(task: str, curve: Curve, other: Curve | None = None):
    """Return a panel with the learning curves of a task: each seed, their mean, the published.

    Those of `other` results are grey.
    """

    def on(axes):
        for each, color in ((other, report.GREY), (curve, report.BLUE)):
            if each is not None:
                steps, returns = np.asarray(each.steps) / 1e6, np.asarray(each.returns)
                axes.plot(steps, returns, color=color, alpha=0.3, linewidth=0.8)
                axes.plot(steps, returns.mean(axis=1), color=color)
        if task in PUBLISHED:
            axes.axhline(PUBLISHED[task], color=report.ORANGE, linewidth=1)
        axes.set(title=task, xlabel="million steps", ylabel="return", ylim=(0, None))

    return on


def chosen_tasks(names: list[str]) -> list[str]:
    """Return the tasks that names and suites stand for."""
    every = [task for suite in SUITES.values() for task in suite]
    tasks: list[str] = []
    for name in names:
        if name not in (*SUITES, *every):
            raise UserError(f"Unknown task '{name}'.{nearest(name, [*SUITES, *every])}")
        tasks += SUITES.get(name, (name,))
    return list(dict.fromkeys(tasks))


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*", default=["dmc"], help="tasks, or suites of them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="tasks that share the device")
    parser.add_argument("--folder", type=Path, help="runs, from which a benchmark continues")
    parser.add_argument("--name", default="playground", help="name of the results in --out")
    parser.add_argument("--add", action="store_true", help="keep other tasks already in --out")
    parser.add_argument("--beside", metavar="NAME", help="results to show beside these")
    parser.add_argument("extra", nargs="*", help="after --: flags of jaxrl.train for all runs")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments, extra = parser.parse_args(words[:split]), words[split + 1 :]
    tasks = chosen_tasks(arguments.tasks)
    if arguments.quick:
        extra = [*report.SMALL, "--epochs", "1", "--cycles", "1", *extra]
    folder = arguments.folder or RUNS / f"{arguments.name}{'-quick' * arguments.quick}"
    for task in tasks:
        assert presets.get(preset_of(task))
    read = learning_curves.read_results
    curves = read(arguments.out / f"{arguments.name}.json") if arguments.add else {}
    others = read(arguments.out / f"{arguments.beside}.json") if arguments.beside else {}
    with ThreadPoolExecutor(arguments.at_once) as threads:
        running = {
            threads.submit(
                learning_curves.train, [preset_of(task), *extra], folder / task, arguments.seeds
            ): task
            for task in tasks
        }
        failed = []
        for done in as_completed(running):
            task = running[done]
            try:
                curve = done.result()
            except RuntimeError as error:  # the other tasks go on
                print(f"{task}: {error}", file=sys.stderr, flush=True)
                failed.append(task)
                continue
            curves[task] = curve
            end = f"{aggregate(curve.returns[-1]):.1f} in {curve.seconds[-1]} s"
            print(f"{task}: {end}", flush=True)
            rows = rows_of(curves)
            if others:
                beside(rows, arguments.beside, others)
            report.save(
                arguments.name,
                rows,
                arguments.out,
                module="playground",
                panels=[panel(*each, others.get(each[0])) for each in sorted(curves.items())],
                extra={"curves": learning_curves.to_json(curves)},
            )
    if failed:
        raise UserError(f"{', '.join(failed)} failed: the same command continues them.")


if __name__ == "__main__":
    sys.exit(exit_status(main))
