"""What of an environment can be looked at: poses of a MuJoCo model, a picture, or what it shows.

An environment has a model if it says `mj_model`, or `sys.mj_model` as Brax's do; `shown(state)` may
say how a state poses it: `qpos`, `mocap_pos` and `mocap_quat` where there are such things, and as a
`ghost` a second pose. Otherwise it may `draw` its inner state. Of others the observation is shown.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and says nothing of its types.

from pathlib import Path
from typing import Any

from jaxrl.types import PyTree

_MODELS = Path(__file__).parent / "tasks" / "assets"
_BY_HAND = ("mocap_pos", "mocap_quat")


def load(name: str) -> Any:
    """Load the model by which one of our own environments is drawn."""
    import mujoco

    return mujoco.MjModel.from_xml_path(str(_MODELS / f"{name}.xml"))


def model_of(env: Any) -> Any:
    """Return an environment's MuJoCo model, or None."""
    env = getattr(env, "unwrapped", env)
    found = getattr(env, "mj_model", None)
    return found if found is not None else getattr(getattr(env, "sys", None), "mj_model", None)


def seconds(env: Any) -> float | None:
    """Return how long a step takes in an environment's own time; None where it has none."""
    found = getattr(getattr(env, "unwrapped", env), "dt", None)
    return None if found is None else float(found)


def shown(env: Any, state: Any) -> PyTree:
    """Return what must be noted of one state (as Brax knows it) to show it later."""
    env = getattr(env, "unwrapped", env)
    model = model_of(env)
    if model is None:
        return state.pipeline_state if hasattr(env, "draw") else state.obs
    if hasattr(env, "shown"):
        return env.shown(state)
    inside = state.pipeline_state
    qpos = inside.q if hasattr(inside, "q") else inside.qpos
    by_hand = _BY_HAND if model.nmocap else ()
    return {"qpos": qpos} | {name: getattr(inside, name) for name in by_hand}
