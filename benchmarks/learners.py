"""Learners side by side on the same tasks: returns over seconds, and how long each takes.

    python -m benchmarks.learners ant humanoid halfcheetah hopper walker2d --seeds 3
    python -m benchmarks.learners hopper --learners ppo fasttd3 --limit 120

Seconds are those since the process began: imports, compiling, evaluations and checkpoints count.
All seeds of a learner are one program in a process of its own, one process after the other. With
`--limit N` every process is ended after N seconds; what it has learnt by then counts.

`fasttd3` and `flashsac` are settings of TD3 and SAC that follow FastTD3 and FlashSAC. They are not
tuned to these tasks.

Runs stay in --folder, runs/benchmarks/learners by default. A benchmark that was interrupted
continues where it stopped, by the same command. `--add` keeps the results of other tasks and
learners that are already in --out; each result names its commit.
"""

import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import learning_curves, report
from benchmarks.learning_curves import Curve, aggregate
from jaxrl.config import presets
from jaxrl.errors import exit_status

RUNS = Path("runs", "benchmarks", "learners")
TASKS = ("ant", "humanoid", "halfcheetah", "hopper", "walker2d")
# What both have in common: few gradient steps on large batches from thousands of environments, and
# rewards in the scale of returns, so that one support of the critics fits every task.
_AT_SCALE = (
    "--total-steps 20000000 --num-envs 1024 --offpolicy.rollout-length 1 "
    "--offpolicy.train-batches 2 --offpolicy.critic c51 --offpolicy.gamma 0.97 "
    "--offpolicy.normalize-reward --offpolicy.v-min -5 --offpolicy.v-max 5 "
    "--offpolicy.buffer-size 10000000 --offpolicy.replay-dtype float16"
)
FAST_TD3 = (
    "--offpolicy.batch-size 32768 --offpolicy.polyak 0.9 --offpolicy.weight-decay 0.1 "
    "--offpolicy.target-noise 0.001 --offpolicy.exploration-noise-min 0.001 "
    "--offpolicy.exploration-noise 0.4"
)
FLASH_SAC = (
    "--offpolicy.batch-size 2048 --offpolicy.polyak 0.99 --network.hidden 128 "
    "--network.critic-hidden 256 --network.activation relu --network.norm rms "
    "--network.residual-blocks 2 --offpolicy.critic-norm batch --offpolicy.unit-weights "
    "--offpolicy.exploration-hold 16 --offpolicy.policy-delay 2 --offpolicy.alpha-init 0.01 "
    "--offpolicy.target-entropy -0.48 --offpolicy.warmup 100000"
)
LEARNERS = {
    "ppo": "{task}",
    "reppo": "{task} --algo reppo",
    "sac": "sac-{task}",
    "td3": "td3-{task}",
    "fasttd3": f"td3-{{task}} {_AT_SCALE} {FAST_TD3}",
    "flashsac": f"sac-{{task}} {_AT_SCALE} {FLASH_SAC}",
}
_QUICK = [*report.SMALL_RUN, "--cycles", "1", "--total-steps", "512"]
_QUICK_REPLAY = shlex.split(
    "--offpolicy.batch-size 16 --offpolicy.warmup 16 --offpolicy.buffer-size 1024"
)
COLORS = dict(zip(LEARNERS, ("C0", "C1", "C2", "C3", "C4", "C5"), strict=True))


def command_of(learner: str, task: str, quick: bool = False) -> list[str]:
    """Return the words of the command line that train a task by a learner."""
    words = shlex.split(LEARNERS[learner].format(task=task))
    if not quick:
        return words
    replay = presets.get(words[0]).algo_section == "offpolicy"
    return [*words, *_QUICK, *(_QUICK_REPLAY if replay else ())]


def rows_of(curves: dict[str, Curve], tasks: list[str]) -> list[dict[str, Any]]:
    """Return a row for each task and learner.

    The last column is the time to nine tenths of the best return on the task. Returns may be
    negative: tenths are counted from the lowest one.
    """
    rows = []
    for task in tasks:
        found = of_task(curves, task)
        means = [mean for each in found.values() for mean in np.mean(each.returns, axis=1)]
        near_best = min(means) + 0.9 * (max(means) - min(means)) if means else 0.0
        for learner, curve in found.items():
            row = {"task": task, "learner": learner, "seeds": len(curve.returns[-1])}
            row |= {"M steps": round(curve.steps[-1] / 1e6, 1), "seconds": curve.seconds[-1]}
            row |= {"end": aggregate(curve.returns[-1])}
            row |= {"s to 90 %": learning_curves.seconds_to(curve, near_best)}
            rows.append(row | {"commit": curve.commit})
    return rows


def of_task(curves: dict[str, Curve], task: str) -> dict[str, Curve]:
    """Return the curves of a task that have an evaluation, by learner."""
    found = {learner: curves.get(f"{learner} {task}") for learner in LEARNERS}
    return {learner: curve for learner, curve in found.items() if curve and curve.steps}


def panel(task: str, curves: dict[str, Curve]):
    """Return a panel with the returns of all learners over seconds; bands are of the seeds."""

    def on(axes):
        for learner, curve in of_task(curves, task).items():
            returns = np.asarray(curve.returns)
            color = COLORS[learner]
            mean = returns.mean(axis=1)
            axes.plot(curve.seconds, mean, color=color, label=learner, marker=".")
            low, high = returns.min(axis=1), returns.max(axis=1)
            axes.fill_between(curve.seconds, low, high, color=color, alpha=0.15, linewidth=0)
        axes.set(title=task, xlabel="seconds since the process began", ylabel="return")
        axes.set_xlim(left=0)
        axes.legend(fontsize="small")

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="tasks of Brax, or others")
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, help="seconds after which a process is ended")
    parser.add_argument("--folder", type=Path, help="runs, to continue from")
    parser.add_argument("--add", action="store_true", help="keep other results already in --out")
    arguments = parser.parse_args()
    runs = arguments.folder or (RUNS.with_name("learners-quick") if arguments.quick else RUNS)
    for task in arguments.tasks:
        for learner in arguments.learners:
            presets.get(command_of(learner, task)[0])  # refuses what has no preset
    path = arguments.out / "learners.json"
    curves = learning_curves.read_results(path) if arguments.add else {}
    for task in arguments.tasks:
        for learner in arguments.learners:
            words = command_of(learner, task, arguments.quick)
            folder = runs / task / learner
            curve = learning_curves.train(words, folder, arguments.seeds, arguments.limit)
            curves[f"{learner} {task}"] = curve
            tasks = list(dict.fromkeys(name.split()[1] for name in curves))
            report.save(
                "learners",
                rows_of(curves, tasks),
                arguments.out,
                panels=[panel(each, curves) for each in tasks],
                extra={"curves": learning_curves.to_json(curves)},
            )


if __name__ == "__main__":
    sys.exit(exit_status(main))
