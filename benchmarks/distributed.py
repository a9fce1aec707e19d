"""How training grows with devices: what crosses them, read from the compiled program.

    python -m benchmarks.distributed [ant humanoid arena imitate] [--clips FOLDER] [--quick]
    python -m benchmarks.distributed --loopback 2

Each preset is compiled for two CPU devices, and nothing is run. The collectives of an iteration and
their bytes do not depend on the number of devices. From them, and from the rate measured on one
GPU, follows what part of that rate remains on N of them if each keeps its environments, under the
assumptions of LINKS. The size of a checkpoint follows from the state.

`--loopback N` trains on this machine instead: with 1 to N processes, each on a core of its own and
with its own environments, connected by the loopback device.
"""

import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks import report
from jaxrl import programs
from jaxrl.config import TrainConfig, presets
from jaxrl.config.distributed import COORDINATOR, PROCESS, PROCESSES
from jaxrl.errors import UserError, exit_status
from jaxrl.loggers import metrics_log
from jaxrl.programs.device import DeviceExecutor, compile_programs
from jaxrl.programs.memory_estimate import num_bytes
from jaxrl.utils import compilation_cache

PRESETS = ("ant", "humanoid", "arena", "imitate")
# Environment steps per second of training on one H200 (benchmarks/README.md, docs/motion.md).
RATES = {"ant": 6.11e6, "humanoid": 0.94e6, "arena": 1.77e6, "imitate": 0.35e6}
GPUS = (8, 64, 512, 4096)
_OP = re.compile(
    r"= (?P<shape>\S.*?) (?P<kind>all-reduce|all-gather|all-to-all|reduce-scatter|"
    r"collective-permute)(?:-start)?\("
)
_SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}


class Link(NamedTuple):
    """A connection between GPUs: seconds per step of a collective, bytes per second of each GPU."""

    latency: float
    bandwidth: float


# Assumed: NVLink of an H200 (900 GB/s both ways together), 400 Gb/s of network for each GPU, and
# trees of 2 log2(N) steps, there and back.
LINKS = {"NVLink": Link(3e-6, 450e9), "400 Gb/s": Link(8e-6, 50e9)}
DISK = 2e9  # bytes per second that a shared disk takes, assumed


class Collective(NamedTuple):
    """A collective of the compiled program, and how often an iteration runs it."""

    kind: str
    bytes: int
    times: int
    innermost: bool  # within the loop over gradient steps


def collectives(text: str, gradient_steps: int) -> list[Collective]:
    """Return the collectives of an iteration from the text of a compiled cycle.

    The loop over iterations is the one of unknown length; loops inside are counted.
    """
    bodies = dict(_computations(text))
    entry = next(name for name in bodies if name.startswith("ENTRY "))

    def walk(name: str, times: int) -> Iterator[Collective]:
        for line in bodies.get(name, ()):
            if found := _OP.search(line):
                size = _bytes(found["shape"])
                innermost = times % gradient_steps == 0
                yield Collective(found["kind"], size, times, innermost)
            for callee, factor in _called(line):
                yield from walk(callee, times * factor)

    return list(walk(entry, 1))


def _computations(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and lines of every computation."""
    name, lines = "", []
    for line in text.splitlines():
        if not line.startswith(" ") and line.rstrip().endswith("{"):
            head = line.split(" (")[0]
            name, lines = head.replace("%", ""), []
        elif line.startswith("}"):
            yield name, lines
        else:
            lines.append(line)


def _called(line: str) -> Iterator[tuple[str, int]]:
    """Yield the computations that an operation runs, and how often each."""
    if body := re.search(r"\bbody=%?([\w.\-]+)", line):
        count = re.search(r'known_trip_count":?\{"?n"?:"?(\d+)', line)
        yield body[1], int(count[1]) if count else 1
        return
    for group in re.findall(
        r"\b(?:calls|to_apply|branch_computations)=\{?([^,}\s]+(?:, [^,}]+)*)", line
    ):
        if "reduce(" in line or "scatter(" in line or "sort(" in line:
            return
        for name in group.split(","):
            yield name.strip().lstrip("%"), 1


def _bytes(shape: str) -> int:
    """Return the size of the result of an operation, which may be a tuple."""
    total = 0
    for kind, dimensions in re.findall(r"\b(\w+)\[([\d,]*)\]", shape):
        numbers = [int(n) for n in dimensions.split(",") if n]
        total += _SIZES.get(kind, 4) * math.prod(numbers)
    return total


def seconds(found: list[Collective], gpus: int) -> float:
    """Return the time of an iteration's collectives: within nodes of 8 GPUs, then between them."""
    total = 0.0
    for each in found:
        for link, number in ((LINKS["NVLink"], min(gpus, 8)), (LINKS["400 Gb/s"], gpus // 8)):
            if number < 2:
                continue
            steps, moved = 2 * math.log2(number), 2 * each.bytes * (number - 1) / number
            total += each.times * (steps * link.latency + moved / link.bandwidth)
    return total


def configured(preset: str, clips: str | None, *, quick: bool) -> TrainConfig:
    """Return the settings that are compiled: those of the preset, on two devices."""
    config = presets.get(preset)
    config = replace(config, devices=2, eval=replace(config.eval, num_envs=0))
    if clips and config.env == "imitation":
        config = replace(config, motion=replace(config.motion, clips=clips))
    if quick:
        ppo = replace(config.ppo, rollout_length=8, num_minibatches=2)
        config = replace(config, num_envs=16, iterations=2, ppo=ppo)
    return config


def row(preset: str, executor: DeviceExecutor) -> dict[str, Any]:
    """Return what was read and what follows from it."""
    program, config = executor.program, executor.program.config
    text = executor._cycle.result().program.as_text() or ""
    updates = config.ppo.num_minibatches * config.ppo.update_epochs
    found = collectives(text, updates)
    inner = [each for each in found if each.innermost]
    state = program.abstract_state()
    rows = num_bytes(state.collector)
    iteration = config.steps_per_iteration / RATES.get(preset, 1e6)
    made: dict[str, Any] = {
        "preset": preset,
        "gradient steps": updates,
        "collectives per gradient step": sum(each.times for each in inner) / updates,
        "bytes per gradient step": sum(each.bytes * each.times for each in inner) / updates,
        "other collectives": sum(each.times for each in found if not each.innermost),
        "their bytes": sum(each.bytes * each.times for each in found if not each.innermost),
        "ms per iteration": 1e3 * iteration,
    }
    for gpus in GPUS:
        made[f"{gpus} GPUs"] = iteration / (iteration + seconds(found, gpus))
    made["checkpoint, shared MB"] = (num_bytes(state) - rows) / 1e6
    made["checkpoint, MB per GPU"] = rows / 1e6
    return made | checkpoints(num_bytes(state) - rows, rows)


def checkpoints(shared: float, per_gpu: float) -> dict[str, float]:
    """Return the size of a checkpoint, of parts in bytes, and the time to write it."""
    sizes = {gpus: shared + gpus * per_gpu for gpus in GPUS}
    return {
        **{f"checkpoint of {gpus} GPUs, GB": size / 1e9 for gpus, size in sizes.items()},
        **{f"checkpoint of {gpus} GPUs, s": size / DISK for gpus, size in sizes.items()},
    }


def loopback(number: int, *, quick: bool) -> dict[str, Any]:
    """Return the rate of training on `number` processes, each pinned to one core."""
    cycles, size = (3, 32) if quick else (8, 1024)
    flags = f"cartpole --num-envs {size * number} --epochs 1 --cycles {cycles} --eval.num-envs 0"
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        names = {COORDINATOR: f"127.0.0.1:{probe.getsockname()[1]}", PROCESSES: str(number)}
        probe.close()
        run = Path(folder) / "run"
        started = [
            subprocess.Popen(
                [
                    *("taskset", "-c", str(rank % (os.cpu_count() or 1))),
                    *(sys.executable, "-m", "jaxrl.train", *flags.split()),
                    *("--iterations", "4", "--run-dir", str(run), "--quiet"),
                ],
                env=os.environ
                | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
                | (names | {PROCESS: str(rank)} if number > 1 else {}),
                stdout=subprocess.DEVNULL,
            )
            for rank in range(number)
        ]
        statuses = [process.wait() for process in started]
        if any(statuses):
            raise UserError("A process of the measurement failed.")
        logged = metrics_log.read(run / "metrics.jsonl").rows[1:]
    return {"processes": number, "steps/s": statistics.median(row["time/fps"] for row in logged)}


def draw(rows: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Draw the predicted part of the rate that remains."""

    def on(axes: Any) -> None:
        for each in rows:
            values = [100 * each[f"{gpus} GPUs"] for gpus in GPUS]
            axes.plot(GPUS, values, marker="o", label=each["preset"])
        axes.set_xscale("log", base=8)
        axes.set_xticks(GPUS, [f"{gpus:,}" for gpus in GPUS])
        axes.set(xlabel="GPUs, 8 per node", ylabel="% of the rate of one GPU, each", ylim=(0, 103))
        axes.set_title("predicted from the compiled program")
        axes.legend(loc="lower left")

    return on


def draw_checkpoints(rows: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Draw the time to write a checkpoint, which is proportional to its size."""

    def on(axes: Any) -> None:
        for each in rows:
            seconds = [each[f"checkpoint of {gpus} GPUs, s"] for gpus in GPUS]
            axes.plot(GPUS, seconds, marker="o", label=each["preset"])
        axes.set_xscale("log", base=8)
        axes.set_yscale("log")
        axes.set_xticks(GPUS, [f"{gpus:,}" for gpus in GPUS])
        axes.set(xlabel="GPUs", ylabel=f"s to write a checkpoint at {DISK / 1e9:g} GB/s")
        gigabytes = axes.secondary_yaxis("right", functions=(_gigabytes, lambda x: x * 1e9 / DISK))
        gigabytes.set_ylabel("GB")

    return on


def _gigabytes(seconds: Any) -> Any:
    return seconds * DISK / 1e9


def draw_loopback(rows: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Draw the rate by the number of processes."""

    def on(axes: Any) -> None:
        numbers = [each["processes"] for each in rows]
        axes.bar(numbers, [each["steps/s"] / 1e3 for each in rows], color=report.BLUE, width=0.6)
        axes.set_xticks(numbers)
        axes.set(xlabel="processes, one core each", ylabel="thousand steps / s", title="cartpole")

    return on


def main() -> None:
    """Run the command line."""
    parser = report.parser(__doc__)
    parser.add_argument("presets", nargs="*", default=PRESETS)
    parser.add_argument("--clips", help="motion clips of `imitate`")
    parser.add_argument("--loopback", type=int, metavar="N", help="train on 1 to N processes")
    arguments = parser.parse_args()
    if arguments.loopback:
        numbers = range(1, arguments.loopback + 1)
        rows = [loopback(number, quick=arguments.quick) for number in numbers]
        for each in rows:
            each["part of N times one"] = each["steps/s"] / each["processes"] / rows[0]["steps/s"]
        panels = [draw_loopback(rows)]
        return report.save("loopback", rows, arguments.out, module="distributed", panels=panels)
    compilation_cache.enable()
    names = ["pendulum"] if arguments.quick else arguments.presets
    rows = []
    for name in names:
        config = configured(name, arguments.clips, quick=arguments.quick)
        rows.append(row(name, compile_programs(programs.build_device(config))))
        print(report.table(rows[-1:]).splitlines()[-1], flush=True)
    report.save("distributed", rows, arguments.out, panels=[draw(rows), draw_checkpoints(rows)])


if __name__ == "__main__":
    # Two CPU devices, whatever the machine has: set before JAX is used.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    sys.exit(exit_status(main))
