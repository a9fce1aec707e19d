"""Motion files of several formats, read as clips of a model.

    .txt, .json   DeepMimic's
    .npz          `native`, loco-mujoco's (q_<joint>), or AMASS's, recognised by their arrays

Pickles are read by `jaxrl.clips.convert` alone.
"""

from pathlib import Path

from jaxrl.config.clip_split import SUFFIXES
from jaxrl.errors import UserError
from jaxrl.motion.clip import Clip
from jaxrl.motion.formats import amass, deepmimic, native
from jaxrl.motion.formats.npz import opened
from jaxrl.motion.skeleton import Skeleton

__all__ = ["SUFFIXES", "any_planned", "files", "read"]


def read(path: str | Path, skeleton: Skeleton, fps: float | None = None) -> list[Clip]:
    """Read the clips of a file, or of all motion files of a folder by name.

    `fps` is the rate of loco-mujoco's files, which do not store it.
    """
    return [_read(file, skeleton, fps) for file in files(Path(path))]


def files(path: Path) -> list[Path]:
    """Return the file itself, or the motion files of a folder in order."""
    known = ", ".join(SUFFIXES)
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise UserError(f"'{path}': motion files end in {known}, not in '{path.suffix}'.")
        return [path]
    inside = path.glob("*") if path.is_dir() else ()
    found = sorted(p for p in inside if p.suffix in SUFFIXES and p.is_file())
    if not found:
        kind = f"a folder without motion files ({known})" if path.is_dir() else "no such file"
        raise UserError(f"'{path}': {kind}.")
    return found


def any_planned(path: str | Path) -> bool:
    """Return whether one of the clips has a plan."""
    return any(_has_plan(file) for file in files(Path(path)) if file.suffix == ".npz")


def _has_plan(file: Path) -> bool:
    with opened(file) as arrays:
        return any(name.startswith(native.PLAN) for name in arrays.names)


def _read(file: Path, skeleton: Skeleton, fps: float | None) -> Clip:
    if file.suffix != ".npz":
        return deepmimic.read(file, skeleton)
    with opened(file) as arrays:
        if "format" in arrays.names:
            return native.read(file, arrays, skeleton)
        if "poses" in arrays.names:
            return amass.read(file, arrays, skeleton)
        if any(name.startswith("q_") for name in arrays.names):
            return native.read_plain(file, arrays, skeleton, fps)
    raise UserError(
        f"'{file}' has an unknown format: neither 'format' (native), nor 'poses' (AMASS), "
        "nor 'q_<joint>' (loco-mujoco)."
    )
