"""MuJoCo's physics: do the trajectories of this package, of MJX and of MuJoCo agree?

    python -m benchmarks.trajectories playground:WalkerRun humanoid/mjx [--starts 16]

MuJoCo plays a model with random controls; states along that way, contacts included, are starts.
From each, the same random controls are applied for 100 steps of physics by three programs: this
package's functions, MJX's own, and MuJoCo itself, in double precision. The table has the median
and the largest difference of any coordinate of `qpos` over all starts after 1, 10 and 100 steps.
The column `rounding` is the yardstick: MJX against itself from starts moved by one rounding error.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import functools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from benchmarks import report
from benchmarks.physics import make
from jaxrl.errors import exit_status
from jaxrl.physics import mjx_patches
from jaxrl.physics.mjx_patches import mjx
from jaxrl.physics.precision import physics

_HORIZONS = (1, 10, 100)
_APART = 20  # steps between two starts
_OPTIONS = (
    *("timestep", "iterations", "ls_iterations", "tolerance", "ls_tolerance"),
    *("solver", "cone", "integrator", "disableflags"),
)


def models(name: str) -> tuple[mujoco.MjModel, mjx.Model]:
    """Return the model of an environment for MuJoCo and for MJX, with the same options."""
    env = make(name).unwrapped
    device = env.sys if hasattr(env, "sys") else mjx.put_model(env.mj_model)
    own = getattr(env, "mj_model", None) or env.sys.mj_model
    for option in _OPTIONS:  # Brax sets some of them on the device only
        kind = type(getattr(own.opt, option))
        setattr(own.opt, option, kind(getattr(device.opt, option)))
    return own, device


def starts(model: mujoco.MjModel, number: int) -> list[mujoco.MjData]:
    """Return states along MuJoCo's own way under random controls."""
    data, generator = mujoco.MjData(model), np.random.default_rng(0)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    found = []
    for _ in range(number):
        data.ctrl = controls(model, generator)
        mujoco.mj_step(model, data, _APART)
        found.append(mujoco.MjData(model))
        for field in ("qpos", "qvel", "act", "qacc_warmstart"):
            getattr(found[-1], field)[:] = getattr(data, field)
        found[-1].ctrl = controls(model, generator)
    return found


def controls(model: mujoco.MjModel, generator: np.random.Generator) -> np.ndarray:
    """Return random controls within their range, or within 1 where they have none."""
    low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, (-1, 1)).T
    return generator.uniform(low, high)


def played_by_mujoco(model: mujoco.MjModel, begun: list[mujoco.MjData]) -> np.ndarray:
    """Return positions at each horizon, start by start."""
    found = []
    for data in begun:
        made, rows = 0, []
        for horizon in _HORIZONS:
            mujoco.mj_step(model, data, horizon - made)
            made = horizon
            rows.append(data.qpos.copy())
        found.append(rows)
    return np.swapaxes(np.array(found), 0, 1)


def player(model: mjx.Model, functions: mjx_patches.Functions) -> Callable[[mjx.Data], np.ndarray]:
    """Return a function of data that returns positions at each horizon, start by start."""

    @jax.jit
    def play(data: mjx.Data) -> jax.Array:
        def once(data, _):
            data = jax.vmap(lambda d: mjx.step(model, d))(data)
            return data, data.qpos

        with mjx_patches.use(functions), physics():
            _, positions = jax.lax.scan(once, data, length=_HORIZONS[-1])
        return positions[jnp.array(_HORIZONS) - 1]

    return lambda data: np.array(play(data), np.float64)


def batched(own: mujoco.MjModel, begun: list[mujoco.MjData]) -> mjx.Data:
    """Return MJX's data of all starts."""
    fields = {
        field: jnp.asarray(np.stack([getattr(data, field) for data in begun]), jnp.float32)
        for field in ("qpos", "qvel", "act", "ctrl", "qacc_warmstart")
    }
    empty = mjx.make_data(own)
    return jax.vmap(lambda changed: empty.replace(**changed))(fields)


def measure(name: str, pair: tuple[Any, Any], number: int) -> list[dict[str, Any]]:
    """Return a row for each horizon, of MuJoCo's model and the same on the device."""
    own, device = pair
    begun = starts(own, number)
    data = batched(own, begun)
    moved = data.replace(qpos=jnp.nextafter(data.qpos, jnp.inf), qvel=data.qvel * (1 + 1e-7))
    play = player(device, "stock")
    stock, rounded = play(data), play(moved)
    ours = player(device, "kernels")(data)
    exact = played_by_mujoco(own, begun)
    pairs = {
        "rounding": (stock, rounded),
        "jaxrl − MJX": (ours, stock),
        "jaxrl − MuJoCo": (ours, exact),
        "MJX − MuJoCo": (stock, exact),
    }
    rows = []
    for i, horizon in enumerate(_HORIZONS):
        row: dict[str, Any] = {"model": name, "steps": horizon}
        for label, (one, other) in pairs.items():
            apart = np.abs(one[i] - other[i]).max(-1)
            row[f"{label} median"] = float(f"{np.median(apart):.1e}")
            row[f"{label} largest"] = float(f"{apart.max():.1e}")
        rows.append(row)
    return rows


def draw(rows: list[dict[str, Any]], horizon: int):
    """Return a panel with median differences after a number of steps."""
    rows = [row for row in rows if row["steps"] == horizon]

    def on(axes):
        kinds = (("rounding", report.GREY), ("jaxrl − MJX", report.BLUE))
        kinds += (("MJX − MuJoCo", report.ORANGE),)
        for label, color in kinds:
            axes.plot([row[f"{label} median"] for row in rows], "o", color=color, label=label)
        names = [row["model"].removeprefix("playground:") for row in rows]
        axes.set_xticks(range(len(rows)), names, rotation=40, ha="right")
        axes.set(yscale="log", ylabel="difference of qpos", title=f"{horizon} steps")
        axes.set_ylim(1e-9, 1e2)
        if horizon == 1:
            axes.legend(frameon=False, loc="upper left")

    return on


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("models", nargs="*", default=["playground:WalkerRun", "humanoid/mjx"])
    parser.add_argument("--starts", type=int, default=16, help="starts of each model")
    arguments = parser.parse_args()
    names, number = arguments.models, arguments.starts
    if arguments.quick:
        names, number = names[:1], 2
    # Not in threads: making an environment silences stdout for a moment, for all of them.
    pairs = [models(name) for name in names]
    with ThreadPoolExecutor() as threads:  # most of the time goes into compiling
        parts = list(threads.map(functools.partial(measure, number=number), names, pairs))
    rows = [row for part in parts for row in part]
    panels = [draw(rows, horizon) for horizon in _HORIZONS]
    report.save("trajectories", rows, arguments.out, panels=panels)


if __name__ == "__main__":
    sys.exit(exit_status(main))
