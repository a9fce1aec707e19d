"""The three layouts of pickled motions, validated before use.

PHC, puffer-phc   {name: {root_trans_offset, pose_aa, pose_quat_global, fps, ...}}: SMPL bodies
IsaacGymEnvs      SkeletonMotion in a .npy: {skeleton_tree, rotation, root_translation, fps}
MimicKit          {loop_mode, fps, frames}: rows of numbers for a character of its own
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.errors import UserError, nearest
from jaxrl.motion.formats import pickle_arrays

SMPL_BODIES = 24


class SmplMotion(NamedTuple):
    """One motion of an SMPL body. Of poses and global rotations, one may be missing."""

    name: str
    root: np.ndarray  # [F, 3] where the pelvis is, in metres, z up
    poses: np.ndarray | None  # [F, 72] local rotations, axis-angle, SMPL's order
    global_rotations: np.ndarray | None  # [F, 24, 4] xyzw, MuJoCo's order, see `smpl.UPRIGHT`
    fps: float


class SkeletonMotion(NamedTuple):
    """One motion of a skeleton that the file describes."""

    name: str
    bodies: tuple[str, ...]
    parents: np.ndarray  # int [J]; -1 for the root
    offsets: np.ndarray  # [J, 3] from the parent, in metres
    rotations: np.ndarray  # [F, J, 4] xyzw
    local: bool  # rotations are relative to the parent's
    root: np.ndarray  # [F, 3]
    fps: float


class RowMotion(NamedTuple):
    """One motion as MimicKit stores it; the character's file defines what a row means."""

    name: str
    rows: np.ndarray  # [F, D]: root position 3, root rotation 3 (axis-angle), then the joints
    loops: bool
    fps: float


Motion = SmplMotion | SkeletonMotion | RowMotion


def read(file: Path) -> list[Motion]:
    """Read all motions of a file, whichever of the layouts it has."""
    contents = pickle_arrays.load(file)
    if isinstance(contents, np.ndarray) and contents.shape == () and contents.dtype == object:
        contents = contents.item()
    if not isinstance(contents, dict) or not contents:
        raise _unknown(file, f"a {type(contents).__name__}")
    if "skeleton_tree" in contents:
        return [_skeleton_motion(file, contents)]
    if "frames" in contents:
        return [_row_motion(file, contents)]
    if all(isinstance(motion, dict) for motion in contents.values()):
        return [_smpl_motion(file, str(name), motion) for name, motion in contents.items()]
    raise _unknown(file, f"a dict of {', '.join(str(key)[:30] for key in list(contents)[:5])}")


def _unknown(file: Path, found: str) -> UserError:
    return UserError(
        f"'{file}' holds {found}, and no motion of a known layout: PHC's (a dict of dicts), "
        "IsaacGymEnvs' SkeletonMotion, or MimicKit's (loop_mode, fps, frames)."
    )


def _smpl_motion(file: Path, name: str, motion: dict) -> SmplMotion:
    where = f"{file.name}: {name[:80]}"
    root = _numbers(where, motion, "root_trans_offset", (None, 3))
    given = [key for key in ("pose_aa", "pose_quat_global") if key in motion]
    if not given:
        raise UserError(f"{where}: neither 'pose_aa' nor 'pose_quat_global' is there.")
    shapes = {
        "pose_aa": (len(root), 3 * SMPL_BODIES),
        "pose_quat_global": (len(root), SMPL_BODIES, 4),
    }
    found = {key: _numbers(where, motion, key, shapes[key]) for key in given}
    if "pose_quat_global" in found:
        _check_unit(where, "pose_quat_global", found["pose_quat_global"])
    return SmplMotion(
        name, root, found.get("pose_aa"), found.get("pose_quat_global"), _fps(where, motion)
    )


def _skeleton_motion(file: Path, motion: dict) -> SkeletonMotion:
    where = file.name
    tree = motion["skeleton_tree"]
    if not isinstance(tree, dict):
        raise UserError(f"{where}: 'skeleton_tree' is no dict.")
    names = tree.get("node_names")
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise UserError(f"{where}: 'skeleton_tree/node_names' is no list of names.")
    count = len(names)
    parents = _numbers(where, tree, "parent_indices", (count,)).astype(np.int64)
    if count == 0 or parents[0] != -1 or not all(-1 < p < i for i, p in enumerate(parents) if i):
        raise UserError(f"{where}: 'parent_indices' must name a parent before each of its bodies.")
    rotations = _numbers(where, motion, "rotation", (None, count, 4))
    _check_unit(where, "rotation", rotations)
    return SkeletonMotion(
        name=file.stem,
        bodies=tuple(names),
        parents=parents,
        offsets=_numbers(where, tree, "local_translation", (count, 3)),
        rotations=rotations,
        local=bool(motion.get("is_local", True)),
        root=_numbers(where, motion, "root_translation", (len(rotations), 3)),
        fps=_fps(where, motion),
    )


def _row_motion(file: Path, motion: dict) -> RowMotion:
    where = file.name
    rows = motion["frames"]
    if isinstance(rows, list):
        rows = _table(where, rows)
    rows = _numbers(where, {"frames": rows}, "frames", (None, None))
    if rows.shape[1] < 6:
        raise UserError(f"{where}: 'frames' has {rows.shape[1]} numbers a row: a root alone has 6.")
    loop_mode = motion.get("loop_mode")
    if loop_mode not in (0, 1):
        raise UserError(f"{where}: 'loop_mode' is {str(loop_mode)[:30]}, neither 0 nor 1.")
    return RowMotion(file.stem, rows, loop_mode == 1, _fps(where, motion))


def _table(where: str, rows: list) -> np.ndarray:
    """Make an array of lists of numbers, and of nothing deeper."""
    flat = [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]
    for i, row in enumerate(flat):
        if not isinstance(row, list | tuple) or not all(type(x) in (int, float) for x in row):
            raise UserError(f"{where}: 'frames' is not numbers in row {i}.")
        if len(row) != len(flat[0]):
            raise UserError(
                f"{where}: 'frames' has {len(row)} numbers in row {i}, {len(flat[0])} in row 0."
            )
    return np.array(flat, np.float64)


def _numbers(where: str, fields: dict, key: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return a field as float64: there, of this shape (None: any length), and finite."""
    if key not in fields:
        known = [name for name in fields if isinstance(name, str)]
        raise UserError(f"{where}: '{key}' is missing.{nearest(key, known)}")
    data = fields[key]
    if isinstance(data, dict):
        data = data.get("arr")  # poselib's way of writing an array
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "fiu":
        raise UserError(f"{where}: '{key}' is a {type(data).__name__}, not an array of numbers.")
    fits = data.ndim == len(shape) and all(
        want in (None, have) for want, have in zip(shape, data.shape, strict=True)
    )
    if not fits or not data.size:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise UserError(f"{where}: '{key}' has the shape {data.shape}, not ({wanted}).")
    if not np.isfinite(data).all():
        first = int(np.argwhere(~np.isfinite(data))[0, 0])
        raise UserError(f"{where}: '{key}' is not finite in row {first}.")
    return data.astype(np.float64)


def _check_unit(where: str, key: str, quaternions: np.ndarray) -> None:
    length = np.linalg.norm(quaternions, axis=-1)
    if np.abs(length - 1.0).max() > 0.01:
        first = int(np.argwhere(np.abs(length - 1.0) > 0.01)[0, 0])
        raise UserError(f"{where}: '{key}' is no rotation in frame {first}: length not 1.")


def _fps(where: str, fields: dict) -> float:
    """Return frames per second, which may be a number or an array that holds one."""
    fps: Any = fields.get("fps")
    if isinstance(fps, np.ndarray) and fps.size == 1:
        fps = fps.item()
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 1 <= fps <= 1000:
        raise UserError(f"{where}: 'fps' is {str(fps)[:30]}, not a number from 1 to 1000.")
    return float(fps)
