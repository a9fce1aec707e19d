"""Memory of PPO's train step, by the number of minibatches and the parts of values and gradients.

    python -m benchmarks.memory [arena] [--minibatches 16 32 64] [--quick]

The step is compiled, not run: XLA reports what it will allocate besides its arguments. `default`
lets --ppo.value-parts choose itself, `parts` computes values in as many parts as there are
minibatches, and `accumulate` also splits each minibatch into four.
"""

import sys
from dataclasses import replace
from typing import Any

import jax

from benchmarks import report
from jaxrl import programs
from jaxrl.config import TrainConfig, presets
from jaxrl.errors import exit_status

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


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("preset", nargs="?", default="arena")
    parser.add_argument("--minibatches", type=int, nargs="+", default=[16, 32, 64])
    arguments = parser.parse_args()
    config = presets.get(arguments.preset)
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
