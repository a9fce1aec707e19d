"""SAC beside brax's SAC at brax's published settings: steps and gradient steps per second.

    python -m benchmarks.off_policy hopper walker2d [--steps 200000] [--quick]

Both learn with the same batches, networks (2 × 256) and number of gradient steps per environment
step, on the physics backend of our preset. Ours is timed over whole cycles, after warm-up (writes
are in place, whether replay is full or not); brax by its last report, in a separate process, with
replay that is full from the start, as it is for most of a real run.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import jax

from benchmarks import brax_worker, report
from jaxrl import programs
from jaxrl.config import OffPolicyConfig, TrainConfig, presets
from jaxrl.errors import exit_status
from jaxrl.programs.device import compile_programs
from jaxrl.utils import compilation_cache


def published(task: str) -> TrainConfig:
    """Return our preset with brax's settings for the same task."""
    config, theirs = presets.get(f"sac-{task}"), brax_worker.SETTINGS_OF_SAC[task]
    settings = OffPolicyConfig(
        train_batches=theirs["grad_updates_per_step"],
        batch_size=theirs["batch_size"],
        buffer_size=theirs["max_replay_size"],
        warmup=theirs["min_replay_size"],
        gamma=theirs["discounting"],
        reward_scale=theirs["reward_scaling"],
        pi_lr=theirs["learning_rate"],
        q_lr=theirs["learning_rate"],
        alpha_lr=theirs["learning_rate"],
        critic_norm="none",  # as theirs; our presets have it
    )
    return replace(config, num_envs=theirs["num_envs"], offpolicy=settings, iterations=100)


def ours(config: TrainConfig, cycles: int) -> dict[str, Any]:
    compiled = compile_programs(programs.build_device(config))
    state = compiled.init_state()
    compiled.wait()
    filled = -(-config.offpolicy.warmup // (config.iterations * config.steps_per_iteration))
    number = 0
    for number in range(filled + 2):
        state, _ = compiled.run_cycle(state, number)
    jax.block_until_ready(state)
    began = time.perf_counter()
    for i in range(cycles):
        state, _ = compiled.run_cycle(state, number + 1 + i)
    jax.block_until_ready(state)
    seconds = (time.perf_counter() - began) / (cycles * config.iterations)
    return _rates("jaxrl", config.steps_per_iteration / seconds, config)


def theirs(task: str, config: TrainConfig, steps: int, evals: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.brax_worker", task, "--evals", str(evals)]
    command += ["--sac", "--full-replay", "--steps", str(steps)]
    command += ["--backend", config.backend] if config.backend else []
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not rows:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return _rates("brax", rows[-1]["steps/s"], config)


def _rates(system: str, rate: float, config: TrainConfig) -> dict[str, Any]:
    per_step = config.offpolicy.train_batches / config.steps_per_iteration
    return {
        "task": config.env,
        "system": system,
        "environments": config.num_envs,
        "batch": config.offpolicy.batch_size,
        "steps/s": rate,
        "gradient steps/s": rate * per_step,
    }


def draw(rows: list[dict[str, Any]]):
    def on(axes):
        names = [f"{row['task']}\n{row['system']}" for row in rows]
        colors = [report.BLUE if row["system"] == "jaxrl" else report.ORANGE for row in rows]
        axes.bar(names, [row["gradient steps/s"] for row in rows], 0.6, color=colors)
        axes.set(ylabel="gradient steps / s")

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps of brax")
    arguments = parser.parse_args()
    compilation_cache.enable()
    rows = []
    for task in arguments.tasks or (["fast"] if arguments.quick else ["hopper", "walker2d"]):
        config = _small() if arguments.quick else published(task)
        pair = [ours(config, 1 if arguments.quick else 10)]
        steps, evals = (2_000, 2) if arguments.quick else (arguments.steps, 4)
        pair.append(theirs(task, config, steps, evals))
        pair[0]["times brax"] = pair[0]["gradient steps/s"] / pair[1]["gradient steps/s"]
        rows += pair
        print(report.table(pair), flush=True)
    report.save("off_policy", rows, arguments.out, panels=[draw(rows)])


def _small() -> TrainConfig:
    """Return the configuration of --quick: trivial physics and small networks."""
    theirs, base = brax_worker.SETTINGS_OF_SAC["fast"], presets.get("rrd-quick")
    settings = replace(
        base.offpolicy,
        reward="env",
        train_batches=theirs["grad_updates_per_step"],
        batch_size=theirs["batch_size"],
        buffer_size=theirs["max_replay_size"],
        warmup=theirs["min_replay_size"],
    )
    task = replace(base.task, episodic_reward=False)
    small = replace(base, env="fast", task=task, num_envs=theirs["num_envs"], iterations=10)
    return replace(small, devices=1, offpolicy=settings, eval=replace(base.eval, num_envs=0))


if __name__ == "__main__":
    sys.exit(exit_status(main))
