"""Environment steps per second: the physics alone, rolling out, and training.

    python -m benchmarks.throughput ant humanoid [--num-envs 4096] [--quick]

raw:      Brax's own `step`, vmapped and scanned over whole states with fixed random actions; no
          policy, no resets.
rollout:  policy, time limits, statistics and resets from the pool; nothing is learnt.
train:    whole cycles, as a run does them. The ratio is train / raw, at the same number of
          environments, in one process. All three are compiled with the same options, run as many
          iterations in a call as a cycle has, and are called twice before the clock starts.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import report
from jaxrl import presets
from jaxrl.config import TrainConfig
from jaxrl.envs.world import physics, typed_like
from jaxrl.errors import exit_status
from jaxrl.rollout import rollout
from jaxrl.runtime import program as programs
from jaxrl.runtime.builder import compile_for_devices
from jaxrl.runtime.compiled import compile_programs


def seconds_per_call(function: Callable, state: Any, calls: int) -> float:
    """Return the mean time of a function of its own result, after two calls to warm up."""
    for _ in range(2):
        state = function(state)
    jax.block_until_ready(state)
    began = time.perf_counter()
    for _ in range(calls):
        state = function(state)
    jax.block_until_ready(state)
    return (time.perf_counter() - began) / calls


def raw_physics(program: programs.Program, length: int):
    """Return (state, actions) -> (state, actions) after `length` steps of nothing but physics."""
    step = jax.vmap(program.env.env.step)

    def run(carried):
        state, actions = carried
        with physics():
            state, _ = jax.lax.scan(
                lambda s, _: (typed_like(step(s, actions), s), None), state, length=length
            )
        return state, actions

    return run


def random_actions(program: programs.Program) -> jax.Array:
    spec, number = program.env.spec.action, program.env.rows
    if spec.discrete:
        actions = jax.random.randint(jax.random.key(1), (number,), 0, spec.size)
    else:
        actions = jax.random.uniform(jax.random.key(1), (number, spec.size), minval=-1.0)
    return program.env.by_env(actions)


def collecting(program: programs.Program, length: int):
    """Return a function that rolls out once, and keeps what was collected."""
    policy = program.algorithm.policy(False)

    def run(carried):
        collector, params, pool, key, _ = carried
        key, now = jax.random.split(key)
        collector, experience = rollout(program.env, policy, params, collector, now, length, pool)
        return collector, params, pool, key, experience

    return run


def measure(config: TrainConfig, calls: int) -> dict[str, Any]:
    program = programs.build(replace(config, eval=replace(config.eval, num_envs=0)))
    compiled = compile_programs(program)
    state, length = compiled.first_state(), config.ppo.rollout_length
    copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
    pool = program.env.pool(jax.random.key(2))
    params = program.algorithm.policy_params(state.learner)

    world = (copy(program.env.brax_state(state.collector.env.world)), random_actions(program))
    collect = collecting(program, length)
    carried = (copy(state.collector), copy(params), pool, jax.random.key(3), None)
    carried = (*carried[:4], jax.tree.map(jnp.zeros_like, jax.eval_shape(collect, carried)[4]))
    with ThreadPoolExecutor() as threads:
        raw = threads.submit(_compile, raw_physics(program, length), world)
        roll = threads.submit(_compile, collect, carried)
    compiled.wait()

    count, number = np.uint32(config.iterations), iter(range(10**6))
    # A raw step is one physics step; an action repeated k times is k of them.
    raw_steps = config.num_envs * length * config.iterations
    steps = raw_steps * config.task.action_repeat
    rates = {
        "raw": raw_steps / seconds_per_call(lambda s: raw.result()(s, count), world, calls),
        "rollout": steps / seconds_per_call(lambda s: roll.result()(s, count), carried, calls),
        "train": steps
        / seconds_per_call(lambda s: compiled.train(s, next(number))[0], state, calls),
    }
    return {
        "preset": config.preset,
        "environments": config.num_envs,
        "agents": program.env.rows // config.num_envs,
        "raw steps/s": rates["raw"],
        "rollout steps/s": rates["rollout"],
        "train steps/s": rates["train"],
        "rollout / raw": rates["rollout"] / rates["raw"],
        "train / raw": rates["train"] / rates["raw"],
    }


def _compile(function: Callable, example: Any) -> Callable:
    """Compile a function of its own result to be repeated, as a cycle repeats its iterations."""

    def repeat(start: Any, count: jax.Array) -> Any:
        return jax.lax.fori_loop(
            jnp.zeros_like(count), count, lambda _, carried: function(carried), start
        )

    lowered = jax.jit(repeat, donate_argnums=0).lower(example, np.uint32(0))
    return compile_for_devices(lowered, unrolled=True)


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
    arguments = parser.parse_args()
    programs.use_compilation_cache()
    names = arguments.presets or (["pendulum"] if arguments.quick else ["ant", "humanoid"])
    rows = []
    for name in names:
        config = presets.get(name)
        config = replace(config, num_envs=arguments.num_envs or config.num_envs)
        if arguments.quick:
            config = replace(config, devices=1, iterations=1, num_envs=64)
        else:
            config = replace(config, iterations=max(1, config.iterations // 2))
        rows.append(measure(config, calls=2 if arguments.quick else 6))
        print(report.table(rows[-1:]).splitlines()[-1], flush=True)
    report.save("throughput", rows, arguments.out, panels=[draw(rows)])


if __name__ == "__main__":
    sys.exit(exit_status(main))
