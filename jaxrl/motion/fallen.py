"""Poses in which a humanoid lies on the ground, for episodes that begin with standing up."""

# pyright: reportAttributeAccessIssue=false
# MuJoCo is compiled and has no type stubs.

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.errors import UserError
from jaxrl.motion.humanoid import Humanoid

_SECONDS = 2.0  # of a fall
_LOW = 0.4  # of the root, as a fraction of its height at rest
_SPREAD = 0.3  # of the servos' ranges, around the rest pose
_TRIES = 10  # falls for each pose that is asked for


def poses(humanoid: Humanoid, number: int, seed: int = 0) -> np.ndarray:
    """Return poses [number, nq] at the origin, which follow from the seed alone.

    The humanoid is tipped over in any direction, holds random servo targets and is dropped from
    where it would stand: after two seconds in MuJoCo it lies. Those that do not are left out.
    """
    rng, model = np.random.default_rng(seed), humanoid.model
    found: list[np.ndarray] = []
    for _ in range(_TRIES * number):
        pose = _fall(humanoid, rng)
        if np.isfinite(pose).all() and pose[2] < _LOW * model.qpos0[2]:
            found.append(pose)
        if len(found) == number:
            return np.array(found, np.float32)
    raise UserError(
        f"--motion.fallen-starts: of {_TRIES * number} falls of this model only {len(found)} end "
        "lying; leave the flag out."
    )


def _fall(humanoid: Humanoid, rng: np.random.Generator) -> np.ndarray:
    """Return the pose at the end of one fall, above the origin."""
    model = humanoid.model
    data = mujoco.MjData(model)
    away = rng.uniform(-np.pi, np.pi)  # the direction of the fall
    tilt = Rotation.from_rotvec(rng.uniform(0.3, 0.7) * np.pi * _horizontal(away))
    turn = Rotation.from_rotvec([0.0, 0.0, rng.uniform(-np.pi, np.pi)])
    rest = Rotation.from_quat(model.qpos0[3:7], scalar_first=True)
    data.qpos[3:7] = (tilt * turn * rest).as_quat(scalar_first=True)
    low, high, middle = humanoid.low, humanoid.high, np.asarray(humanoid.rest)
    spread = _SPREAD * rng.uniform(-1.0, 1.0, len(middle))
    data.ctrl[:] = np.clip(middle + spread * (high - low) / 2.0, low, high)
    steps = round(_SECONDS / model.opt.timestep)
    mujoco.mj_step(model, data, steps)
    data.qpos[:2] = 0.0
    return data.qpos.copy()


def _horizontal(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle), 0.0])
