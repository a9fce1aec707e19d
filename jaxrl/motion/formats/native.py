"""Motion files by joint names: our own, and the plain ones of loco-mujoco.

Ours holds: format "jaxrl-motion-1", fps, loops, joint_names, body_names, root_position [F, 3],
root_rotation [F, 4] and joint/<name> ([F, 4] for a ball joint, [F] for a hinge or slide); where
a plan was made also plan/qpos, plan/qvel, plan/feedforward, in the model's order, and
plan/substeps and plan/actuator_names.

A plain file holds q_<joint> [F] of hinges and slides; its root is q_pelvis_tx, q_pelvis_tz and
q_pelvis_ty (x, y and z: the names are those of a Y-up model) from where the model's root is at
rest, and turned in this order by q_pelvis_tilt (about -y), q_pelvis_list (x), q_pelvis_rotation
(z). Its rate is `frequency` or `fps` in the file, if it is there, or 100 Hz as in those datasets.
"""

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxrl.errors import UserError
from jaxrl.motion import clip as clips
from jaxrl.motion.clip import Clip, Plan
from jaxrl.motion.formats import checks
from jaxrl.motion.formats.npz import Arrays
from jaxrl.motion.skeleton import Joint, Skeleton
from jaxrl.utils.atomic_io import replacing

FORMAT = "jaxrl-motion-1"
PLAN = "plan/"  # prefix of the arrays of a plan
SUBSTEPS = f"{PLAN}substeps"
_ACTUATORS = f"{PLAN}actuator_names"
_PLAIN_FPS = 100.0
_PLAIN_ROOT = ("tx", "tz", "ty", "tilt", "list", "rotation")


def write(path: str | Path, clip: Clip, skeleton: Skeleton) -> None:
    """Write a clip to a .npz file in the native format."""
    if any(not joint.name for joint in skeleton.joints):
        raise UserError("Motions are stored by joint names: every joint of the model needs a name.")
    arrays = {
        "format": np.array(FORMAT),
        "fps": np.array(clip.fps),
        "loops": np.array(clip.loops),
        "joint_names": np.array([joint.name for joint in skeleton.joints[1:]]),
        "body_names": np.array(skeleton.bodies),
        "root_position": clip.qpos[:, :3],
        "root_rotation": clip.qpos[:, 3:7],
    }
    arrays |= {f"joint/{joint.name}": _flat(joint, clip.qpos) for joint in skeleton.joints[1:]}
    if clip.plan is not None:
        arrays |= {f"{PLAN}{name}": np.array(value) for name, value in clip.plan._asdict().items()}
        arrays[_ACTUATORS] = np.array(_actuators(skeleton))
    with replacing(Path(path)) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _flat(joint: Joint, qpos: np.ndarray) -> np.ndarray:
    return qpos[:, joint.columns] if joint.kind == "ball" else qpos[:, joint.qpos]


def read(file: Path, arrays: Arrays, skeleton: Skeleton) -> Clip:
    """Read a file in the native format."""
    found = ", ".join(arrays.texts("format"))
    if found != FORMAT:
        raise UserError(f"'{file}' has the format '{found}'; expected '{FORMAT}'.")
    checks.same_joints(file, skeleton, arrays.texts("joint_names"))
    checks.same_bodies(file, skeleton, arrays.texts("body_names"))
    shapes: dict[str, tuple[int | None, ...]] = {
        f"joint/{j.name}": (None, 4) if j.kind == "ball" else (None,) for j in skeleton.joints[1:]
    }
    values = arrays.columns({"root_position": (None, 3), "root_rotation": (None, 4)} | shapes)
    qpos = np.empty((len(values["root_position"]), skeleton.model.nq))
    qpos[:, :7] = np.concatenate([values["root_position"], values["root_rotation"]], -1)
    for joint in skeleton.joints[1:]:
        qpos[:, joint.columns] = values[f"joint/{joint.name}"].reshape(qpos[:, joint.columns].shape)
    clip = Clip(file.stem, arrays.number("fps"), bool(arrays.number("loops")), qpos)
    return clips.validate(clip, skeleton, str(file))._replace(plan=_plan(file, arrays, skeleton))


def _plan(file: Path, arrays: Arrays, skeleton: Skeleton) -> Plan | None:
    """Return the plan of a file, if it has one."""
    if not any(name.startswith(PLAN) for name in arrays.names):
        return None
    model = skeleton.model
    widths = {"qpos": model.nq, "qvel": model.nv, "feedforward": model.nu}
    named = {f"{PLAN}{name}": (None, width) for name, width in widths.items()}
    values = arrays.columns({"root_position": (None, 3)} | named)
    joints = [joint.name for joint in skeleton.joints[1:]]
    in_order = arrays.texts("joint_names") == joints
    in_order = in_order and arrays.texts(_ACTUATORS) == _actuators(skeleton)
    if not in_order or not all(np.isfinite(v).all() for v in values.values()):
        why = "has numbers that are not finite" if in_order else "is of a model of another order"
        raise UserError(f"'{file}': its plan {why}; plan the captured clip again.")
    substeps = int(arrays.number(SUBSTEPS))
    qpos, qvel, feedforward = (values[f"{PLAN}{name}"] for name in widths)
    return Plan(qpos, qvel, feedforward, substeps)


def _actuators(skeleton: Skeleton) -> list[str]:
    return [skeleton.model.actuator(i).name for i in range(skeleton.model.nu)]


def read_plain(file: Path, arrays: Arrays, skeleton: Skeleton, fps: float | None = None) -> Clip:
    """Read a file of q_<joint> arrays, for a model that has those joints and a free root."""
    for joint in skeleton.joints[1:]:
        if joint.kind == "ball":
            raise UserError(f"'{file}' has hinges only, but the model's '{joint.name}' is a ball.")
    root = [f"q_pelvis_{part}" for part in _PLAIN_ROOT]
    given = [name[2:] for name in arrays.names if name.startswith("q_") and name not in root]
    checks.same_joints(file, skeleton, given)
    names = root + [f"q_{joint.name}" for joint in skeleton.joints[1:]]
    values = arrays.columns(dict.fromkeys(names, (None,)))
    qpos = np.empty((len(values[root[0]]), skeleton.model.nq))
    qpos[:, :3] = skeleton.model.qpos0[:3] + np.stack([values[name] for name in root[:3]], -1)
    angles = np.stack([-values[root[3]], values[root[4]], values[root[5]]], -1)
    rest = Rotation.from_quat(skeleton.model.qpos0[3:7], scalar_first=True)
    qpos[:, 3:7] = (rest * Rotation.from_euler("YXZ", angles)).as_quat(scalar_first=True)
    for joint in skeleton.joints[1:]:
        qpos[:, joint.qpos] = values[f"q_{joint.name}"]
    rates = [name for name in ("frequency", "fps") if name in arrays.names]
    rate = fps or (arrays.number(rates[0]) if rates else _PLAIN_FPS)
    return clips.validate(Clip(file.stem, rate, False, qpos), skeleton, str(file))
