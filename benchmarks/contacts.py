"""Steps per second of Brax's generalized physics: with its own contact solver, and with ours.

    python -m benchmarks.contacts pusher swimmer [--num-envs 4096] [--quick]

Only physics under fixed random actions, as `raw` in benchmarks.throughput; both in one process. On
a GPU each is compiled with unrolled loops and without, and the faster one counts. `apart` is the
distance between the observations of both after the first call, in the median environment: contacts
amplify small differences.
"""

import importlib.util
import sys
from typing import Any

import jax
import numpy as np

from benchmarks import report
from benchmarks.stepping import seconds_per_call
from jaxrl.config import env_names
from jaxrl.envs import brax_patches, registry
from jaxrl.envs.env_state import typed_like
from jaxrl.errors import exit_status, nearest
from jaxrl.physics.precision import physics
from jaxrl.utils import compilation_cache
from jaxrl.utils.xla_options import compile_for_devices


def forces() -> dict[str, Any]:
    """Return both solvers; Brax's is imported again, since ours has replaced it."""
    spec: Any = importlib.util.find_spec("brax.generalized.constraint")
    original = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(original)
    return {"brax": original.force, "jaxrl": brax_patches.contact_force}


def run_physics(env: Any, force: Any, size: int, length: int) -> tuple[Any, Any]:
    """Return (`length` steps of all environments, lowered but not compiled; the start state)."""
    from brax.generalized import constraint

    def begin(key: jax.Array) -> Any:
        with physics():
            state = jax.vmap(env.reset)(jax.random.split(key, size))
        return state, jax.random.uniform(key, (size, env.action_size), minval=-1.0)

    def run(carried: Any) -> Any:
        state, actions = carried
        with physics():
            step = jax.vmap(env.step)
            state, _ = jax.lax.scan(
                lambda s, _: (typed_like(step(s, actions), s), None), state, length=length
            )
        return state, actions

    constraint.force = force
    start = jax.jit(begin)(jax.random.key(0))
    return jax.jit(run).lower(start), start


def measure(task: str, size: int, length: int, calls: int) -> list[dict[str, Any]]:
    env, rows, seen = registry.make(task, "generalized"), [], {}
    for name, force in forces().items():
        lowered, start = run_physics(env, force, size, length)
        ways = (False, True) if jax.default_backend() == "gpu" else (False,)
        compiled = [compile_for_devices(lowered, unrolled=way) for way in ways]
        seen[name] = np.asarray(compiled[0](start)[0].obs)
        seconds = min(seconds_per_call(function, start, calls) for function in compiled)
        row = {"task": task, "environments": size, "forces by": name}
        rows.append(row | {"steps/s": size * length / seconds})
    rows[1]["times brax"] = rows[1]["steps/s"] / rows[0]["steps/s"]
    rows[1]["apart"] = float(np.median(np.abs(seen["jaxrl"] - seen["brax"]).max(-1)))
    return rows


def draw(rows: list[dict[str, Any]]):
    def on(axes):
        labels = [f"{row['task']}\nforces by {row['forces by']}" for row in rows]
        colors = [report.BLUE if "times brax" in row else report.ORANGE for row in rows]
        axes.bar(labels, [row["steps/s"] for row in rows], 0.6, color=colors)
        axes.set(ylabel="physics steps / s")

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("tasks", nargs="*", help="of Brax")
    parser.add_argument("--num-envs", type=int)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        if task not in env_names.BRAX:
            known = ", ".join(env_names.BRAX)
            parser.error(
                f"'{task}' is not a task of Brax.{nearest(task, env_names.BRAX)} Known: {known}"
            )
    compilation_cache.enable()
    size = arguments.num_envs
    if size is None:
        size = 16 if arguments.quick else 4096
    if size < 1:
        parser.error(f"--num-envs must be at least 1, not {size}")
    calls, length = (1, 4) if arguments.quick else (6, 16)
    rows = []
    for task in arguments.tasks or (["swimmer"] if arguments.quick else ["pusher"]):
        rows += measure(task, size, length, calls)
        report.save("contacts", rows, arguments.out, panels=[draw(rows)])


if __name__ == "__main__":
    sys.exit(exit_status(main))
