"""Several seeds as one program, against the same seeds one after another.

    python -m benchmarks.populations cartpole --seeds 8 [--quick] [any flag of jaxrl.train]

Every run is a separate process, timed from its start to its end: imports, compilation, evaluation
and checkpoints included. Caches are warm: each way was run for one epoch before, so that nothing is
compiled again. (A run caches its traced program for identical later runs, so the first of the
single runs traces, as does the population, which caches none.) Both ways train every seed for
the same number of steps; their returns are compared too, since a faster run could learn worse.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from jaxrl import train
from jaxrl.config import (
    TrainConfig,
    overrides,
    variants,
)
from jaxrl.errors import exit_status
from jaxrl.loggers.sinks import read_jsonl
from jaxrl.reports import plots
from jaxrl.utils import stats

QUICK = ["--epochs", "1", "--cycles", "2", *report.SMALL]


class Process(NamedTuple):
    """Time and memory of one process, and the logs of its seeds."""

    seconds: float
    peak_gib: float  # of the process
    logs: list[list[dict[str, float]]]


def run(flags: list[str], folder: Path, logs: list[Path], caches: Path | None) -> Process:
    """Train in a new process, with separate caches if given."""
    command = [sys.executable, "-m", "jaxrl.train", *flags, "--run-dir", str(folder)]
    env = dict(os.environ)
    if caches:
        env |= {"XDG_CACHE_HOME": str(caches)}
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
    with folder.with_suffix(".txt").open("w+") as output:
        began = time.monotonic()
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            print(output.read()[-3000:], file=sys.stderr)
            raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    return Process(seconds, used.ru_maxrss / 2**20, [read_jsonl(log) for log in logs])


def measure(flags: list[str], seeds: list[TrainConfig], *, warm: bool) -> dict[str, list[Process]]:
    """Train all seeds, in both ways; return the processes of each."""
    config, number = seeds[0], len(seeds)
    epoch = config.cycles * config.iterations * config.steps_per_iteration
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        caches = here / "cache" if warm else None

        def together(name: str, *more: str) -> Process:
            folder = here / name
            logs = [folder / each / "metrics.jsonl" for each in variants.folder_names(seeds)]
            words = [*flags, "--num-seeds", str(number), *more]
            return run(words, folder, logs, caches)

        def alone(name: str, seed: int, *more: str) -> Process:
            folder = here / name
            words = [*flags, "--seed", str(seed), *more]
            return run(words, folder, [folder / "metrics.jsonl"], caches)

        if warm:
            together("warm-together", "--total-steps", str(epoch))
            alone("warm-alone", config.seed, "--total-steps", str(epoch))
        return {
            "one program": [together("together")],
            "one after another": [alone(f"seed-{one.seed}", one.seed) for one in seeds],
        }


def curves(processes: list[Process]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of the evaluations, and returns [seeds, points]."""
    name = "eval/mean_reward"
    logs = [[row for row in log if name in row] for each in processes for log in each.logs]
    steps = np.array([row["step"] for row in logs[0]])
    return steps, np.array([[row[name] for row in log] for log in logs])


def describe(preset: str, how: str, processes: list[Process]) -> dict[str, Any]:
    """Return a row of the table; a log's times are those of its process, shared by its seeds."""
    first = [each.logs[0] for each in processes]
    training = sum(row["time/cycle_seconds"] for log in first for row in log)
    steps = sum(log[-1]["step"] for each in processes for log in each.logs)
    final = curves(processes)[1][:, -1]
    iqm, low, high = map(float, stats.iqm_with_interval(final))
    return {
        "preset": preset,
        "how": how,
        "seeds": len(final),
        "seconds": sum(each.seconds for each in processes),
        "compiling, s": sum(log[-1]["time/compile_seconds"] for log in first),
        "training, s": training,
        "steps/s, all seeds": steps / training,
        "process GiB": max(each.peak_gib for each in processes),
        "device MiB": max(row["time/memory_mb"] for log in first for row in log),
        "peak MiB": max(log[-1]["time/peak_memory_mb"] for log in first),
        "return (IQM)": iqm,
        "95 % from": low,
        "95 % to": high,
    }


def draw_seconds(rows: list[dict[str, Any]]):
    def on(axes):
        names = [row["how"] for row in rows]
        axes.barh(names, [row["seconds"] for row in rows], color=[report.BLUE, report.GREY])
        trained = [row["training, s"] for row in rows]
        axes.barh(names, trained, color=report.ORANGE, height=0.3, label="of that, training cycles")
        axes.set(xlabel=f"seconds for {rows[0]['seeds']} seeds, caches warm")
        axes.legend(frameon=False)

    return on


def draw_curves(seen: dict[str, list[Process]]):
    def on(axes):
        for color, (how, processes) in zip((report.BLUE, report.GREY), seen.items(), strict=True):
            steps, returns = curves(processes)
            plots.seed_curves(axes, steps, returns, color, width=2.2, label=how, single=True)
        axes.set(xlabel="environment steps of each seed", ylabel="evaluated return")
        axes.legend(frameon=False)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("preset", nargs="?", default="cartpole")
    parser.add_argument("--seeds", type=int, default=None)
    arguments, extra = parser.parse_known_args()
    flags = [arguments.preset, *(QUICK if arguments.quick else []), *extra]
    number = arguments.seeds or (2 if arguments.quick else 8)
    seeds = overrides.members(train._parse(flags).config, number)
    load = os.getloadavg()[0]  # other load of the machine slows both ways
    seen = measure(flags, seeds, warm=not arguments.quick)
    rows = [describe(arguments.preset, how, processes) for how, processes in seen.items()]
    rows[0]["times faster"] = rows[1]["seconds"] / rows[0]["seconds"]
    report.save(
        f"populations-{arguments.preset}",
        rows,
        arguments.out,
        module="populations",
        panels=[draw_seconds(rows), draw_curves(seen)],
        extra={
            "load of the machine before": round(load, 1),
            "caches": "unchanged" if arguments.quick else "warm",
            "final returns": {how: curves(p)[1][:, -1].tolist() for how, p in seen.items()},
            "seconds of each process": {how: [e.seconds for e in p] for how, p in seen.items()},
        },
    )


if __name__ == "__main__":
    sys.exit(exit_status(main))
