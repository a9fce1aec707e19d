"""Scaling: steps per second, time per cycle and peak memory by number of environments.

    python -m benchmarks.scaling ant [--sizes 512 1024 ... 65536] [--quick]

Memory is the peak of the compiled cycle according to the compiler: arguments, results and
temporaries. The batch of a gradient step grows with the environments.
"""

import sys
import time
from dataclasses import replace
from typing import Any

import jax

from benchmarks import report
from jaxrl import programs
from jaxrl.config import presets
from jaxrl.errors import exit_status
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.utils import compilation_cache

SIZES = [512 * 2**i for i in range(8)]


def measure(compiled: DeviceExecutor, calls: int) -> dict[str, Any]:
    config = compiled.program.config
    compiled.wait()
    state = compiled.init_state()
    for number in range(2):
        state, _ = compiled.run_cycle(state, number)
    jax.block_until_ready(state)
    began = time.perf_counter()
    for number in range(calls):
        state, _ = compiled.run_cycle(state, number)
    jax.block_until_ready(state)
    iteration = (time.perf_counter() - began) / (calls * config.iterations)
    return {
        "environments": config.num_envs,
        "steps/s": config.steps_per_iteration / iteration,
        "ms per iteration": 1e3 * iteration,
        "ns per step": 1e9 * iteration / config.steps_per_iteration,
        "peak GiB": compiled.cycle_bytes() / 2**30,
    }


def draw(rows: list[dict[str, Any]], preset: str):
    def on(axes):
        sizes = [row["environments"] for row in rows]
        rates = [row["steps/s"] / 1e6 for row in rows]
        axes.plot(sizes, rates, marker="o", color=report.BLUE, label="steps/s")
        axes.set_xscale("log", base=2)
        axes.set(xlabel="environments", ylabel="million steps / s", title=preset)
        axes.set_ylim(bottom=0)
        other = axes.twinx()
        memory = [row["peak GiB"] for row in rows]
        other.plot(sizes, memory, marker="s", color=report.ORANGE)
        other.set_ylabel("peak memory, GiB", color=report.ORANGE)
        other.set_ylim(bottom=0)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("preset", nargs="?", default="ant")
    parser.add_argument("--sizes", type=int, nargs="+")
    arguments = parser.parse_args()
    compilation_cache.enable()
    preset = "pendulum" if arguments.quick else arguments.preset
    sizes = arguments.sizes or ([16, 32] if arguments.quick else SIZES)
    base = presets.get(preset)
    base = replace(base, eval=replace(base.eval, num_envs=0))
    base = replace(base, iterations=10, preset="scaling")
    if arguments.quick:
        base = replace(base, devices=1, iterations=2)
    configs = [replace(base, num_envs=n) for n in sizes]
    # All sizes compile side by side while the first ones run.
    compiling = [compile_programs(programs.build_device(config)) for config in configs]
    for compiled in compiling:
        compiled.wait()
    rows = []
    for compiled in compiling:
        rows.append(measure(compiled, calls=2 if arguments.quick else 6))
        print(report.table(rows[-1:]).splitlines()[-1], flush=True)
    report.save("scaling", rows, arguments.out, panels=[draw(rows, preset)])


if __name__ == "__main__":
    sys.exit(exit_status(main))
