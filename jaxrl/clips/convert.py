"""Convert pickled motions: `python -m jaxrl.clips.convert IN OUT_FOLDER` writes one .npz each.

IN is a file of PHC or puffer-phc (.pkl), IsaacGymEnvs (.npy) or MimicKit (.pkl), or a folder of
them. The .npz files hold numbers and names only, and are what `jaxrl.motion` loads; a pickle is
never read anywhere else.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line
from jaxrl.utils.formatting import plural

if TYPE_CHECKING:
    from jaxrl.motion.clip import Clip
    from jaxrl.motion.formats.pickled import Motion
    from jaxrl.motion.skeleton import Skeleton

SUFFIXES = (".pkl", ".npy")


@dataclass(frozen=True)
class ConvertArgs:
    """Retarget pickled motions to the packaged humanoid."""

    source: Annotated[Path, tyro.conf.Positional]
    """File (.pkl or .npy), or a folder of them."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write to; created if missing."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    module = "clips.convert"
    return exit_status(lambda: _convert(command_line.parse(ConvertArgs, arguments, module)))


def _convert(args: ConvertArgs) -> None:
    from jaxrl.motion import skeleton as skeletons
    from jaxrl.motion.formats import native, pickled

    skeleton = skeletons.describe(skeletons.load_model())
    # All files are read and validated before any is written.
    motions = [motion for file in files(args.source) for motion in pickled.read(file)]
    clips = [retarget(motion, skeleton) for motion in motions]
    paths = [args.out / f"{name}.npz" for name in file_names([clip.name for clip in clips])]
    for path in paths:
        if path.exists():  # it may hold a plan, which took minutes
            raise UserError(f"'{path}' exists already: choose another folder, or remove it.")
    args.out.mkdir(parents=True, exist_ok=True)
    for clip, path in zip(clips, paths, strict=True):
        native.write(path, clip, skeleton)
    seconds = sum(clip.seconds for clip in clips)
    print(f"{plural(len(clips), 'motion')}, {seconds:,.1f} s, written to {args.out}")


def retarget(motion: "Motion", skeleton: "Skeleton") -> "Clip":
    """Retarget a motion of any layout to the packaged humanoid."""
    from jaxrl.motion import amp_humanoid, smpl
    from jaxrl.motion.clip import validate
    from jaxrl.motion.formats import amass
    from jaxrl.motion.formats.pickled import SkeletonMotion, SmplMotion

    if isinstance(motion, SmplMotion):
        trans, poses, fps = smpl.amass_fields(motion)
        return validate(
            amass.retarget(trans, poses, fps, skeleton, motion.name), skeleton, motion.name
        )
    if isinstance(motion, SkeletonMotion):
        return amp_humanoid.from_skeleton_motion(motion, skeleton)
    return amp_humanoid.from_rows(motion, skeleton)


def files(source: Path) -> list[Path]:
    """Return the file itself, or the pickles of a folder in order."""
    if source.is_file():
        return [source]
    found = sorted(p for p in source.glob("*") if p.suffix in SUFFIXES) if source.is_dir() else []
    if not found:
        kind = (
            "a folder without .pkl or .npy files" if source.exists() else "no such file or folder"
        )
        raise UserError(f"'{source}': {kind}.")
    return found


def file_names(names: list[str]) -> list[str]:
    """Return a name for each motion's file: safe in any folder, and no two the same."""
    chosen: list[str] = []
    taken: set[str] = set()  # in lower case: some file systems ignore case
    for name in names:
        # Names come from the file, and must not lead out of the folder.
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".")[:100] or "motion"
        free, number = safe, 2
        while free.lower() in taken:
            free, number = f"{safe}-{number}", number + 1
        taken.add(free.lower())
        chosen.append(free)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
