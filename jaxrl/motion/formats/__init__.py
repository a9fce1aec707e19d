"""Motion files of several kinds, read as clips of a model.

    .txt, .json   DeepMimic's
    .npz          ours (`named`), loco-mujoco's (q_<joint>), or AMASS's, told apart by what is in it

Pickles are never read.
"""

from pathlib import Path

from jaxrl.errors import UserError
from jaxrl.motion.clip import Clip
from jaxrl.motion.formats import deepmimic
from jaxrl.motion.skeleton import Skeleton

SUFFIXES = (".txt", ".json", ".npz")


def read(path: str | Path, skeleton: Skeleton) -> list[Clip]:
    """Read the clips of a file, or of all motion files of a folder by name."""
    return [_read(file, skeleton) for file in files(Path(path))]


def files(path: Path) -> list[Path]:
    """Return the file meant, or the motion files of a folder in order."""
    known = ", ".join(SUFFIXES)
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise UserError(f"'{path}': motion files end in {known}, not in '{path.suffix}'.")
        return [path]
    found = sorted(p for p in path.glob("*") if p.suffix in SUFFIXES) if path.is_dir() else []
    if not found:
        kind = f"a folder without motion files ({known})" if path.is_dir() else "no such file"
        raise UserError(f"'{path}': {kind}.")
    return found


def _read(file: Path, skeleton: Skeleton) -> Clip:
    return deepmimic.read(file, skeleton)
