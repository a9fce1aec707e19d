"""Time, memory and learning by the number of minibatches per batch.

    python -m benchmarks.minibatches arena --counts 16 32 64 [--steps 20000000] [--quick]

The batch stays the same; more minibatches are more and smaller gradient steps. Every count is a
separate run with the same seed, in this process; seconds are those of its cycles alone.
"""

import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report
from jaxrl import programs
from jaxrl.callbacks import CallbackContext
from jaxrl.config import TrainConfig, presets
from jaxrl.errors import exit_status
from jaxrl.programs.device import compile_programs
from jaxrl.training.fit import fit_or_resume


def run(config: TrainConfig) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """Train; return a row of the table, and (seconds, return of training episodes) per cycle."""
    program = programs.build_device(config)
    executor = compile_programs(program)
    seconds, curve = [], []

    def record(context: CallbackContext) -> None:
        seconds.append(context.metrics["time/cycle_seconds"])
        mean = context.metrics.get("rollout/ep_rew_mean", math.nan)
        if math.isfinite(mean):  # no episode may have ended
            curve.append((sum(seconds), mean))

    with tempfile.TemporaryDirectory() as folder:
        if fit_or_resume(program, Path(folder), [record], executor=executor).stopped_by:
            raise KeyboardInterrupt
    agents = program.env.rows // config.num_envs
    steps = len(seconds) * config.iterations * config.steps_per_iteration
    per_iteration = agents * config.steps_per_iteration
    return {
        "minibatches": config.ppo.num_minibatches,
        "steps per minibatch": per_iteration // config.ppo.num_minibatches,
        "agent steps/s": agents * steps / sum(seconds),
        "ms per iteration": 1e3 * sum(seconds) / (len(seconds) * config.iterations),
        "peak GiB": executor.cycle_bytes() / 2**30,
        "million agent steps": agents * steps / 1e6,
        "return at the end": curve[-1][1] if curve else math.nan,
    }, curve


def draw(curves: dict[int, list[tuple[float, float]]], preset: str):
    def on(axes):
        for (count, curve), color in zip(
            curves.items(), (report.BLUE, report.ORANGE, report.GREY), strict=False
        ):
            axes.plot(*zip(*curve, strict=True), color=color, label=f"{count} minibatches")
        axes.set(xlabel="seconds of training", ylabel="return of training episodes", title=preset)
        axes.legend(frameon=False)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("preset", nargs="?")
    parser.add_argument("--counts", type=int, nargs="+")
    parser.add_argument("--steps", type=float, default=20e6, help="environment steps of each run")
    arguments = parser.parse_args()
    name = arguments.preset or ("arena-small" if arguments.quick else "arena")
    config = presets.get(name)
    log = replace(config.log, tensorboard=False)
    config = replace(config, eval=replace(config.eval, num_envs=0), log=log, epochs=1)
    counts = arguments.counts or ([2, 4] if arguments.quick else [16, 32, 64])
    if arguments.quick:
        config = replace(config, devices=1, num_envs=4, iterations=5)
    cycles = 1 if arguments.quick else None
    rows, curves = [], {}
    for count in counts:
        one = replace(config, ppo=replace(config.ppo, num_minibatches=count))
        number = cycles or max(1, round(arguments.steps / one.iterations / one.steps_per_iteration))
        row, curves[count] = run(replace(one, total_steps=None, cycles=number))
        rows.append(row)
        print(report.table(rows[-1:]).splitlines()[-1], flush=True)
    report.save("minibatches", rows, arguments.out, panels=[draw(curves, name)])


if __name__ == "__main__":
    sys.exit(exit_status(main))
