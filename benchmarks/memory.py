"""Memory of a train step: PPO by its minibatches, or learning from recorded images by their size.

    python -m benchmarks.memory [arena] [--minibatches 16 32 64] [--quick]
    python -m benchmarks.memory rrd-offline-images [--sizes 64 128] [--quick]

The step is compiled, not run: XLA reports what it will allocate besides its arguments. For PPO,
`default` lets --ppo.value-parts choose itself, `parts` computes values in as many parts as there
are minibatches, and `accumulate` also splits each minibatch into four. Images are random, in an
HDF5 file with a robot's state; `chunk` is the data on the device.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import report
from jaxrl import programs
from jaxrl.config import TrainConfig, presets
from jaxrl.data import hdf5
from jaxrl.errors import exit_status
from jaxrl.programs import offline
from jaxrl.programs.memory_estimate import num_bytes

KINDS = ("one part", "default", "parts", "accumulate")
_ACCUMULATE = 4


def settings(config: TrainConfig, kind: str, minibatches: int) -> TrainConfig:
    """Return the settings of a measurement."""
    accumulate = _ACCUMULATE if kind == "accumulate" else 1
    parts = {"one part": 1, "default": None}.get(kind, minibatches * accumulate)
    ppo = replace(config.ppo, num_minibatches=minibatches, accumulate=accumulate, value_parts=parts)
    return replace(config, ppo=ppo, devices=1)


def temporary_bytes(config: TrainConfig) -> int:
    """Return what one iteration allocates, besides the training state."""
    program = programs.build(config)
    step = jax.jit(program.algorithm.train_step, donate_argnums=0)
    analysis: Any = step.lower(program.abstract_state()).compile().memory_analysis()
    return analysis.temp_size_in_bytes


def panel(rows: list[dict[str, Any]]):
    def on(axes):
        for kind in KINDS:
            axes.plot(
                [row["minibatches"] for row in rows],
                [row[f"{kind}, MiB"] for row in rows],
                marker="o",
                label=kind,
            )
        axes.set_xscale("log", base=2)
        numbers = [row["minibatches"] for row in rows]
        axes.set_xticks(numbers, map(str, numbers))
        axes.set(xlabel="minibatches", ylabel="temporary MiB", ylim=(0, None))
        axes.legend(frameon=False)

    return on


def write_images(path: Path, size: int, episodes: int, length: int) -> None:
    """Record random actions, images of one camera and a robot's state."""
    rng = np.random.default_rng(0)
    played = []
    for _ in range(episodes):
        image = rng.integers(0, 256, (length + 1, size, size, 3), dtype=np.uint8)
        state = rng.normal(size=(length + 1, 9)).astype(np.float32)
        obs, after = ({"image": image[i:][:length], "state": state[i:][:length]} for i in (0, 1))
        action = rng.uniform(-1, 1, (length, 7)).astype(np.float32)
        played.append(hdf5.Episode(obs, after, action, state[1:, 0], True))
    env_args = {"env_name": "images", "action": {"size": 7, "discrete": False}}
    hdf5.write(path, played, env_args, {})


def image_row(preset: str, size: int, episodes: int, length: int) -> dict[str, Any]:
    """Return what the training state and the data take, and what a cycle needs besides them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.hdf5"
        write_images(path, size, episodes, length)
        config = presets.get(preset)
        program = offline.build(replace(config, data=replace(config.data, path=path), devices=1))
        executor = program.start()
        executor.wait()
        state, chunk = num_bytes(program.abstract_state()), num_bytes(program.data.chunk(0))
        need = executor.cycle_bytes()
    return {
        "preset": preset,
        "images": f"{size} x {size} x 3",
        "state, MiB": state / 2**20,
        "chunk, MiB": chunk / 2**20,
        "besides, MiB": (need - state - chunk) / 2**20,
    }


def draw_images(rows: list[dict[str, Any]]):
    def on(axes):
        below = np.zeros(len(rows))
        colors = {"state": report.GREY, "chunk": report.ORANGE, "besides": report.BLUE}
        for kind, color in colors.items():
            heights = np.array([row[f"{kind}, MiB"] for row in rows])
            axes.bar([row["images"] for row in rows], heights, 0.5, below, color=color, label=kind)
            below += heights
        axes.set(ylabel="MiB")
        axes.legend(frameon=False)

    return on


def measure_images(arguments: Any) -> None:
    sizes, amount = arguments.sizes, (12, 100)
    if arguments.quick:
        sizes, amount = [32], (4, 20)
    rows = [image_row(arguments.preset, size, *amount) for size in sizes]
    name, panels = f"memory-{arguments.preset}", [draw_images(rows)]
    report.save(name, rows, arguments.out, module="memory", panels=panels)


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("preset", nargs="?", default="arena")
    parser.add_argument("--minibatches", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128], help="of images")
    arguments = parser.parse_args()
    config = presets.get(arguments.preset)
    if config.env == "offline":
        return measure_images(arguments)
    if arguments.quick:
        arguments.minibatches = [2, 4]
        config = replace(config, num_envs=8, ppo=replace(config.ppo, rollout_length=8))
    rows = []
    for minibatches in arguments.minibatches:
        row: dict[str, Any] = {"preset": arguments.preset, "minibatches": minibatches}
        for kind in KINDS:
            size = temporary_bytes(settings(config, kind, minibatches))
            row[f"{kind}, MiB"] = size / 2**20
            print(f"{minibatches} minibatches, {kind}: {size / 2**20:,.0f} MiB", flush=True)
        rows.append(row)
    report.save("memory", rows, arguments.out, panels=[panel(rows)])


if __name__ == "__main__":
    sys.exit(exit_status(main))
