"""Environment steps per second: the physics alone, rolling out, and training.

    python -m benchmarks.throughput ant humanoid [--num-envs 4096] [--quick]

raw:      Brax's own `step`, vmapped and scanned over whole states with fixed random actions; no
          policy, no resets. Compiled twice, with unrolled loops, as a run's are, and without;
          the faster one counts.
rollout:  policy, time limits, statistics and resets from the pool; no learning.
train:    complete cycles, as in a run. The ratio is train / raw, at the same number of
          environments, in one process. All of them run as many iterations in a call as a cycle
          has, and are called twice before the clock starts.

Each preset has its process. With --at-once, several compile at the same time, and are timed one
after the other when all have compiled.
"""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import report
from benchmarks.stepping import repeated, seconds_per_call
from benchmarks.turns import Turns, in_processes
from jaxrl import programs
from jaxrl.config import TrainConfig, presets
from jaxrl.envs.rows import split_agents
from jaxrl.errors import exit_status
from jaxrl.programs.device import compile_programs
from jaxrl.rollout import collect
from jaxrl.types import TrainState
from jaxrl.utils import compilation_cache
from jaxrl.utils.xla_options import compile_for_devices

_MOST_STEPS = 2**20  # of all environments in a call


def physics_alone(program: programs.DeviceProgram, state: TrainState, length: int):
    """Return (function, start): `length` steps of physics only."""
    run = repeated(jax.vmap(program.env.env.step), length)
    return run, (program.env.brax_state(state.collector.env.packed), random_actions(program))


def random_actions(program: programs.DeviceProgram) -> jax.Array:
    spec, number = program.env.spec.action, program.env.rows
    if spec.discrete:
        actions = jax.random.randint(jax.random.key(1), (number,), 0, spec.size)
    else:
        actions = jax.random.uniform(jax.random.key(1), (number, spec.size), minval=-1.0)
    return split_agents(actions, program.env.template.agents)


def rolling_out(program: programs.DeviceProgram, state: TrainState, length: int):
    """Return (function, start): one rollout, with the collected experience as output."""
    policy = program.algorithm.policy(False)

    def run(carried):
        collector, params, pool, key, _ = carried
        key, now = jax.random.split(key)
        collector, experience = collect(program.env, policy, params, collector, now, length, pool)
        return collector, params, pool, key, experience

    pool = program.env.sample_pool(jax.random.key(2))
    params = program.algorithm.policy_params(state.learner)
    start = (state.collector, params, pool, jax.random.key(3), None)
    nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(run, start)[4])
    return run, (*start[:4], nothing)


def measure(turns: Turns, config: TrainConfig, calls: int) -> dict[str, Any]:
    compilation_cache.enable()
    program = programs.build_device(replace(config, eval=replace(config.eval, num_envs=0)))
    compiled = compile_programs(program)
    state, length = compiled.init_state(), config.learning.rollout_length
    alone, rolling = physics_alone(program, state, length), rolling_out(program, state, length)
    with ThreadPoolExecutor() as threads:
        raw = [threads.submit(_compile, *alone, unrolled) for unrolled in (False, True)]
        roll = threads.submit(_compile, *rolling, True)
    compiled.wait()

    copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
    count, number = np.uint32(config.iterations), iter(range(10**6))

    def seconds(run: Future, start: Any) -> float:
        return seconds_per_call(lambda s: run.result()(s, count), copy(start), calls)

    # A raw step is one physics step; an action repeated k times is k of them.
    steps, repeat = config.num_envs * length * config.iterations, config.task.action_repeat
    with turns.alone(config.preset):
        raw_rate = steps / min(seconds(run, alone[1]) for run in raw)
        rollout_rate = steps * repeat / seconds(roll, rolling[1])
        cycle = seconds_per_call(lambda s: compiled.run_cycle(s, next(number))[0], state, calls)
    train_rate = steps * repeat / cycle
    return {
        "preset": config.preset,
        "environments": config.num_envs,
        "agents": program.env.rows // config.num_envs,
        "raw steps/s": raw_rate,
        "rollout steps/s": rollout_rate,
        "train steps/s": train_rate,
        "rollout / raw": rollout_rate / raw_rate,
        "train / raw": train_rate / raw_rate,
    }


def _compile(function: Callable, example: Any, unrolled: bool) -> Callable:
    """Compile a loop that applies a function to its own result, as a cycle does its iterations."""

    def repeat(start: Any, count: jax.Array) -> Any:
        return jax.lax.fori_loop(
            jnp.zeros_like(count), count, lambda _, carried: function(carried), start
        )

    lowered = jax.jit(repeat, donate_argnums=0).lower(example, np.uint32(0))
    return compile_for_devices(lowered, unrolled=unrolled)


def draw(rows: list[dict[str, Any]]):
    def on(axes):
        kinds = ["raw steps/s", "rollout steps/s", "train steps/s"]
        colors = [report.GREY, report.ORANGE, report.BLUE]
        for i, (kind, color) in enumerate(zip(kinds, colors, strict=True)):
            places = [n + 0.27 * (i - 1) for n in range(len(rows))]
            bars = axes.bar(places, [row[kind] / 1e6 for row in rows], 0.25, color=color)
            bars.set_label(kind.removesuffix(" steps/s"))
        names = [f"{row['preset']}\n{row['environments']:,} environments" for row in rows]
        axes.set_xticks(range(len(rows)), names)
        axes.set(ylabel="million steps / s")
        axes.legend(frameon=False)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--at-once", type=int, default=1, help="presets that are compiled at once")
    parser.add_argument("--name", default="throughput", help="name of the results in --out")
    arguments = parser.parse_args()
    names = arguments.presets or (["pendulum"] if arguments.quick else ["ant", "humanoid"])
    calls, tasks = 2 if arguments.quick else 6, []
    for config in [presets.get(name) for name in names]:
        if arguments.num_envs is not None:
            config = replace(config, num_envs=arguments.num_envs)
        if arguments.quick:
            config = replace(config, devices=1, iterations=1, num_envs=64)
        else:
            steps = config.num_envs * config.learning.rollout_length
            most = min(config.iterations // 2, _MOST_STEPS // steps)
            config = replace(config, iterations=max(1, most))
        tasks.append((config, calls))
    rows = []
    for row in in_processes(measure, tasks, arguments.at_once):
        rows.append(row)
        panels = [draw(rows)]
        report.save(arguments.name, rows, arguments.out, module="throughput", panels=panels)


if __name__ == "__main__":
    sys.exit(exit_status(main))
