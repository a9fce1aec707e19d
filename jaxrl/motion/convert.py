"""Convert pickled motions: `python -m jaxrl.motion.convert IN OUT_FOLDER` writes one .npz each.

IN is a file of PHC or puffer-phc (.pkl), or a folder of them. The .npz files hold numbers and
names only, and are what `jaxrl.motion` loads; a pickle is never read anywhere else.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from jaxrl.errors import UserError, exit_status
from jaxrl.motion import pickled_motions, smpl
from jaxrl.motion.pickled_motions import Motion, SmplMotion

SUFFIXES = (".pkl", ".npy")


@dataclass(frozen=True)
class Command:
    """Carry pickled motions over to our humanoid."""

    source: Annotated[Path, tyro.conf.Positional]
    """File (.pkl or .npy), or a folder of them."""
    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write to; made when it is not there."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    command = tyro.cli(Command, args=arguments, prog="python -m jaxrl.motion.convert")
    return exit_status(lambda: _convert(command))


def _convert(command: Command) -> None:
    # All is read and checked before anything is written.
    motions = [
        _as_smpl(file, m) for file in files(command.source) for m in pickled_motions.read(file)
    ]
    names = file_names([motion.name for motion in motions])
    command.out.mkdir(parents=True, exist_ok=True)
    retarget_and_write(motions, [command.out / f"{name}.npz" for name in names])
    seconds = sum(len(motion.root) / motion.fps for motion in motions)
    print(f"{len(motions)} motions, {seconds:,.1f} s, written to {command.out}")


def files(source: Path) -> list[Path]:
    """Return the file meant, or the pickles of a folder in order."""
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
    taken: set[str] = set()  # in small letters, which some file systems do not tell apart
    for name in names:
        # Names come from the file, and must not lead out of the folder.
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".")[:100] or "motion"
        free, number = safe, 2
        while free.lower() in taken:
            free, number = f"{safe}-{number}", number + 1
        taken.add(free.lower())
        chosen.append(free)
    return chosen


def _as_smpl(file: Path, motion: Motion) -> SmplMotion:
    if isinstance(motion, SmplMotion):
        return motion
    raise UserError(
        f"'{file}' holds a {type(motion).__name__}: it can be read (jaxrl.motion.pickled_motions), "
        "but only motions of the SMPL body (PHC's files) can be carried over to our humanoid."
    )


def retarget_and_write(motions: list[SmplMotion], paths: list[Path]) -> None:
    """Carry motions over to our humanoid, and write them by the names of its joints."""
    from jaxrl.motion import skeleton  # pyright: ignore
    from jaxrl.motion.formats import amass, named  # pyright: ignore

    ours = skeleton.Skeleton.of(skeleton.load_model(None))
    for motion, path in zip(motions, paths, strict=True):
        trans, poses, fps = smpl.amass_fields(motion)
        named.write(path, amass.retarget(trans, poses, fps, ours, motion.name), ours)


if __name__ == "__main__":
    sys.exit(main())
