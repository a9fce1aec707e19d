"""MuJoCo's physics: steps per second with MJX's own functions and with this package's.

    python -m benchmarks.physics playground:WalkerRun humanoid/mjx [--num-envs 2048] [--parts jaxrl]

Models are presets, or Brax's environments with a backend. Steps are control steps of the task,
vmapped and scanned over whole states with fixed random actions; no policy, no resets. Both kinds
are compiled in one process, with unrolled loops and without; the faster of the two counts. Each
model has its process. With --at-once, several compile at the same time, and are timed one after the
other when all have compiled; seconds of compiling then say less. With --parts, a profile of one
kind or of both follows: kernels and microseconds of a control step, by the part of the forward
dynamics that they belong to. It is of a program without CUDA graphs, in which kernels lose their
names. `--add` keeps the results of other models that are already in --out; every row names its
commit.
"""

import collections
import contextlib
import importlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import report
from benchmarks.stepping import repeated, seconds_per_call
from benchmarks.turns import Turns, in_processes
from jaxrl.config import presets
from jaxrl.envs import registry
from jaxrl.errors import exit_status
from jaxrl.physics import mjx_patches
from jaxrl.physics.precision import physics
from jaxrl.utils.xla_options import compile_for_devices

_STEPS = 32  # of a call
_NO_GRAPHS: dict[str, str | bool] = {"xla_gpu_enable_command_buffer": ""}
_KINDS: dict[str, mjx_patches.Functions] = {"mjx": "stock", "jaxrl": "kernels"}
# Kernels of this package; the solver is one of them or three.
_KERNELS = {
    "solve_positive": "solve_positive",
    **dict.fromkeys(
        ("solve_constraints", "solver_start", "solve_hessian", "solver_move"), "solve_constraints"
    ),
}
# Functions of MJX that a profile tells apart, by module.
_PARTS = {
    "smooth": (
        *("kinematics", "com_pos", "crb", "factor_m", "transmission", "com_vel", "rne", "solve_m"),
        "rne_postconstraint",
    ),
    "collision_driver": ("collision",),
    "constraint": ("make_constraint",),
    "passive": ("passive",),
    "sensor": ("sensor_pos", "sensor_vel", "sensor_acc"),
    "solver": ("solve",),
    "forward": ("fwd_actuation", "_advance"),
}


def make(name: str) -> Any:
    """Build the environment of a preset, or Brax's of a name and a backend."""
    task, _, backend = name.partition("/")
    return registry.make(task, backend) if backend else registry.from_config(presets.get(name))


def stepping(env: Any, number: int):
    """Return (function, start): steps of physics only."""
    with physics():
        state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), number))
    actions = jax.random.uniform(jax.random.key(1), (number, env.action_size), minval=-1.0)
    return repeated(jax.vmap(env.step), _STEPS), (state, actions)


def seconds_per_step(compiled: Any, start: Any, calls: int) -> float:
    """Return the time of a step; the compiled function donates its argument."""
    return seconds_per_call(compiled, jax.tree.map(jnp.copy, start), calls) / _STEPS


@contextlib.contextmanager
def named_parts() -> Iterator[None]:
    """Name the parts of MJX's forward dynamics in compiled programs."""
    originals = []
    for module, names in _PARTS.items():
        place = importlib.import_module(f"mujoco.mjx._src.{module}")
        for name in names:
            function = getattr(place, name)
            originals.append((place, name, function))
            setattr(place, name, jax.named_call(function, name=f"part_{name}"))
    try:
        yield
    finally:
        for place, name, function in originals:
            setattr(place, name, function)


def profile(compiled: Any, start: Any) -> list[dict[str, Any]]:
    """Return kernels and their microseconds in a step, by part."""
    names = dict(re.findall(r'%?([\w.\-]+) = [^\n]*?op_name="([^"]*)"', compiled.as_text()))
    state = compiled(jax.tree.map(jnp.copy, start))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(state))
        (path,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(path)).planes
        events = [
            (dict(event.stats).get("hlo_op", ""), event.name, event.duration_ns)
            for plane in planes
            if "GPU" in plane.name
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]
    took: collections.Counter = collections.Counter()
    kernels: collections.Counter = collections.Counter()
    for operation, kernel, nanoseconds in events:
        part = _part_of(names.get(operation, ""), kernel)
        took[part] += nanoseconds / 1e3 / _STEPS
        kernels[part] += 1
    return [
        {"part": part, "us": round(value, 1), "kernels": round(kernels[part] / _STEPS, 1)}
        for part, value in took.most_common()
    ]


def _part_of(operation: str, kernel: str) -> str:
    found = re.findall(r"part_(\w+)", operation)
    if found:
        return found[-1]
    return _KERNELS.get(kernel, "other")


class Programs(NamedTuple):
    """Compiled steps of one kind."""

    timed: list[Any]  # with unrolled loops and without
    profiled: Any  # without CUDA graphs; None where no profile is wanted
    start: Any
    seconds: float  # of compiling one of the timed


def compile_steps(name: str, number: int, kind: str, parts: bool) -> Programs:
    """Compile the steps of a model with one kind of functions."""
    naming = named_parts() if parts else contextlib.nullcontext()
    with mjx_patches.use(_KINDS[kind]), naming:
        function, start = stepping(make(name), number)
        began = time.perf_counter()
        lowered = jax.jit(function, donate_argnums=0).lower(start)
        timed = [compile_for_devices(lowered, unrolled=each) for each in (False, True)]
        seconds = (time.perf_counter() - began) / len(timed)
        profiled = lowered.compile(compiler_options=_NO_GRAPHS) if parts else None
    return Programs(timed, profiled, start, seconds)


def measure(turns: Turns, name: str, number: int, calls: int, parts: list[str]) -> dict[str, Any]:
    """Return a row with both kinds."""
    made = {kind: compile_steps(name, number, kind, kind in parts) for kind in _KINDS}
    row: dict[str, Any] = {"model": name, "environments": number, "commit": report.commit()}
    with turns.alone(name):
        for kind, (timed, profiled, start, seconds) in made.items():
            row[f"{kind} compile s"] = round(seconds, 1)
            row[f"{kind} steps/s"] = number / min(
                seconds_per_step(each, start, calls) for each in timed
            )
            if profiled:
                row[f"{kind} parts"] = profile(profiled, start)
    row["ratio"] = row["jaxrl steps/s"] / row["mjx steps/s"]
    return row


def draw(rows: list[dict[str, Any]]):
    """Return a panel with steps per second, ours beside MJX's."""

    def on(axes):
        for i, (kind, color) in enumerate((("mjx", report.GREY), ("jaxrl", report.BLUE))):
            places = [n + 0.4 * (i - 0.5) for n in range(len(rows))]
            rates = [row[f"{kind} steps/s"] / 1e6 for row in rows]
            axes.bar(places, rates, 0.38, color=color, label=kind)
        names = [row["model"].removeprefix("playground:") for row in rows]
        axes.set_xticks(range(len(rows)), names, rotation=40, ha="right")
        axes.set(ylabel="million steps / s")
        axes.legend(frameon=False)

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("models", nargs="*", default=["playground:WalkerRun", "humanoid/mjx"])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[2048])
    parser.add_argument("--calls", type=int, default=4, help="calls of 32 steps to measure")
    parser.add_argument("--parts", nargs="+", choices=list(_KINDS), default=[], help="GPU only")
    parser.add_argument("--at-once", type=int, default=1, help="models that are compiled at once")
    parser.add_argument("--name", default="physics", help="name of the results in --out")
    parser.add_argument("--add", action="store_true", help="keep other models already in --out")
    arguments = parser.parse_args()
    models, numbers, calls = arguments.models, arguments.num_envs, arguments.calls
    if arguments.quick:
        models, numbers, calls = models[:1], [8], 1
    parts = [] if arguments.quick else arguments.parts
    wanted = [(model, number) for model in models for number in numbers]
    tasks = [(*each, calls, parts) for each in wanted]
    path = arguments.out / f"{arguments.name}.json"
    earlier = json.loads(path.read_text()) if arguments.add and path.exists() else {}
    rows = {(row["model"], row["environments"]): row for row in earlier.get("rows", [])}
    profiles = earlier.get("profiles", {})
    for row in in_processes(measure, tasks, arguments.at_once):
        if parts:
            profiles[row["model"]] = {kind: row.pop(f"{kind} parts") for kind in parts}
            for kind, found in profiles[row["model"]].items():
                print(f"\n{row['model']}, {kind}:\n{report.table(found)}", flush=True)
        rows[row["model"], row["environments"]] = row
        report.save(
            arguments.name,
            list(rows.values()),
            arguments.out,
            module="physics",
            panels=[draw(list(rows.values()))],
            extra={"profiles": profiles} if profiles else None,
        )


if __name__ == "__main__":
    sys.exit(exit_status(main))
