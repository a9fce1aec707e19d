"""Gymnasium environments: does it pay to step one group while another's actions are computed?

    python -m benchmarks.overlap [gym:HalfCheetah-v5] [--quick]

Groups have the same size throughout, so that the device always computes the same batch of actions;
with async_factor 2 there are two of them. The policy is so wide that its step costs about as much
as the environments'. Only collecting is timed, not learning.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import jax
import numpy as np

from benchmarks import report
from jaxrl import programs
from jaxrl.config import NetworkConfig, presets
from jaxrl.errors import exit_status
from jaxrl.programs.gymnasium import GymnasiumExecutor


def start(
    env: str, factor: int, group: int, width: int, length: int
) -> tuple[GymnasiumExecutor, Any]:
    """Start environments in `factor` groups; return them and a policy's parameters."""
    config = presets.get("gym-cartpole")
    config = replace(
        config,
        env=env,
        devices=1,
        num_envs=factor * group,
        network=NetworkConfig(hidden=(width, width), critic_hidden=(8,)),
        task=replace(config.task, async_factor=factor),
        ppo=replace(config.ppo, rollout_length=length, num_minibatches=1),
    )
    program = programs.build(config)
    assert isinstance(program, programs.GymnasiumProgram)
    run = program.start()
    return run, run.program.algorithm.policy_params(run.init_state().learner)


def seconds(function: Callable, times: int) -> float:
    """Return the median time of a call, after two to warm up."""
    taken = []
    for _ in range(times + 2):
        began = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began)
    return median(taken[2:])


def costs(env: str, group: int, width: int) -> tuple[float, float]:
    """Return the seconds that one step of a group takes: its environments, and its policy."""
    run, params = start(env, 1, group, width, 8)
    (member,), (carry,) = run.groups, run.carries
    member.wait_ready()
    key = jax.random.key(0)

    def act():
        acted = run.act(params, member.obs, carry, member.ended, key, np.uint32(0))
        return jax.block_until_ready(acted.action)

    action = np.asarray(act())

    def step():
        member.send(action)
        member.receive()

    return seconds(step, 30), seconds(act, 30)


def measure(env: str, group: int, width: int, length: int, times: int) -> list[dict[str, Any]]:
    of_envs, of_policy = costs(env, group, width)
    rows = []
    for factor in (1, 2):
        run, params = start(env, factor, group, width, length)
        numbers = iter(range(10**6))
        taken = seconds(lambda run=run, p=params, n=numbers: run.collect(p, next(n)), times)
        rows.append(
            {
                "environment": env,
                "async_factor": factor,
                "environments": factor * group,
                "width": width,
                "ms per step, environments": 1e3 * of_envs,
                "ms per step, policy": 1e3 * of_policy,
                "steps/s": factor * group * length / taken,
            }
        )
        rows[-1]["gain"] = rows[-1]["steps/s"] / rows[0]["steps/s"]
    return rows


def draw(rows: list[dict[str, Any]]):
    def on(axes):
        names = [f"async_factor {row['async_factor']}" for row in rows]
        axes.bar(names, [row["steps/s"] for row in rows], 0.5, color=[report.GREY, report.BLUE])
        axes.set(ylabel="steps / s", title=rows[0]["environment"])

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("env", nargs="?")
    parser.add_argument("--width", type=int, help="of the policy; searched by default")
    arguments = parser.parse_args()
    env = arguments.env or ("gym:CartPole-v1" if arguments.quick else "gym:HalfCheetah-v5")
    group, length, times = (4, 8, 3) if arguments.quick else (32, 64, 12)
    width = arguments.width or (16 if arguments.quick else 64)
    while not (arguments.quick or arguments.width):
        of_envs, of_policy = costs(env, group, width)
        if of_policy >= 0.8 * of_envs or width >= 4096:
            break
        width *= 2
    rows = measure(env, group, width, length, times)
    report.save("overlap", rows, arguments.out, panels=[draw(rows)])


if __name__ == "__main__":
    sys.exit(exit_status(main))
