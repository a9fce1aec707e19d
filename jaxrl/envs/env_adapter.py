"""How a renderer reads any environment: its MuJoCo model, its time step, and poses of its states.

An environment has a model if it has `mj_model`, or `sys.mj_model` as Brax's do. Its method
`render_state(state)` may return the pose of that model: `qpos`, `mocap_pos` and `mocap_quat` where
the model has them, and as `ghost` a second pose. An environment without a model may `draw` its
`pipeline_state` as an image. Of all others the observation is shown.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.types import PyTree

if TYPE_CHECKING:
    from brax.envs.base import State
    from mujoco import MjModel

_ASSETS = Path(__file__).parent / "tasks" / "assets"
_MOCAP = ("mocap_pos", "mocap_quat")


def load_model(name: str) -> "MjModel":
    """Load the model by which one of this package's environments is drawn."""
    import mujoco

    return mujoco.MjModel.from_xml_path(str(_ASSETS / f"{name}.xml"))


def mujoco_model(env: Any) -> "MjModel | None":
    """Return an environment's MuJoCo model, or None."""
    env = getattr(env, "unwrapped", env)
    model = getattr(env, "mj_model", None)
    return model if model is not None else getattr(getattr(env, "sys", None), "mj_model", None)


def step_seconds(env: Any) -> float | None:
    """Return the simulated seconds of a step; None if the environment has no time."""
    dt = getattr(getattr(env, "unwrapped", env), "dt", None)
    return None if dt is None else float(dt)


def render_state(env: Any, state: "State") -> PyTree:
    """Return the part of one Brax state that a renderer needs."""
    env = getattr(env, "unwrapped", env)
    model = mujoco_model(env)
    if model is None:
        return state.pipeline_state if hasattr(env, "draw") else state.obs
    if hasattr(env, "render_state"):
        return env.render_state(state)
    physics: Any = state.pipeline_state
    qpos = physics.q if hasattr(physics, "q") else physics.qpos
    mocap = _MOCAP if model.nmocap else ()
    return {"qpos": qpos} | {name: getattr(physics, name) for name in mocap}
