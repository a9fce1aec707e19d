"""Import MuJoCo Playground quietly, and replace four of its names.

- Two tasks (0.2.0) call `jnp.clip` by an argument name that JAX has dropped.
- The folder of mujoco_menagerie is a constant there; a run may choose another.
- What is missing of it would be downloaded, unasked.
- Sensors would be read in every substep; a task sees those of the last.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# Playground is an extra; MuJoCo is compiled and has no type stubs.

import contextlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import mujoco

from jaxrl.envs.brax_patches import without_warp_notice
from jaxrl.errors import UserError, install
from jaxrl.types import Array


def import_registry() -> types.ModuleType:
    """Return `mujoco_playground.registry`, patched."""
    if importlib.util.find_spec("mujoco_playground") is None:
        raise UserError(
            f"--env playground:<name> needs MuJoCo Playground: {install('playground')}."
        )
    with quiet():
        from mujoco_playground import registry
        from mujoco_playground._src import mjx_env
        from mujoco_playground._src.manipulation.franka_emika_panda_robotiq import push_cube
        from mujoco_playground._src.manipulation.leap_hand import reorient
    for module in (push_cube, reorient):
        module.jp = types.SimpleNamespace(**{**vars(jnp), "clip": _clip})  # type: ignore[assignment]
    mjx_env.step = _step
    return registry


def _step(model: Any, data: Any, action: Array, n_substeps: int = 1) -> Any:
    from jaxrl.physics import mjx_patches

    return mjx_patches.substeps(model, data, action, n_substeps)


def _clip(x: Array, *bounds: Any, a_max: Any = None, **named: Any) -> Array:
    return jnp.clip(x, *bounds, **named | ({} if a_max is None else {"max": a_max}))


def read_robots_from(folder: Path) -> None:
    """Let Playground read mujoco_menagerie from a folder, and download nothing."""
    from etils import epath
    from mujoco_playground._src import mjx_env

    mjx_env.ensure_menagerie_exists = lambda: None
    mjx_env.MENAGERIE_PATH = epath.Path(folder)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop notices of a missing warp, and of deprecated parts of Playground's models.

    Other warnings of MuJoCo are printed.
    """
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_print_unless_deprecated)
    try:
        with warnings.catch_warnings(), without_warp_notice():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(before)


def _print_unless_deprecated(message: str) -> None:
    if "is deprecated" not in message:
        print(f"warning: MuJoCo: {message}", file=sys.stderr)
