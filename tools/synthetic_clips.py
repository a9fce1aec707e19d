"""Write many short clips, to try a library that is larger than the device.

    python tools/synthetic_clips.py clips --number 10000
    python -m jaxrl.train imitate --motion.clips clips --motion.max-clips 512 --dry-run
    python -m jaxrl.train imitate --motion.clips clips --motion.max-clips 512

Each clip is a part of our generated motion, walking in another direction at another speed.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from jaxrl.motion import skeleton, synthetic
from jaxrl.motion.clip import FPS, Clip
from jaxrl.motion.formats import native
from jaxrl.motion.skeleton import Skeleton


@dataclass(frozen=True)
class Args:
    """Write synthetic clips of one to three seconds."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder to write to; created if missing."""
    number: int = 10_000
    """Number of clips."""
    seed: int = 0
    """Seed of lengths, directions and speeds."""


def make(bones: Skeleton, rng: np.random.Generator, name: str) -> Clip:
    """Return one clip."""
    whole = synthetic.stepping(bones, seconds=4.0)
    count, first = rng.integers(30, 90), rng.integers(0, 30)  # frames
    qpos = whole.qpos[first : first + count + 1].copy()
    angle, speed = rng.uniform(-np.pi, np.pi), rng.uniform(0.0, 0.5)
    path = speed * np.arange(count + 1) / FPS
    qpos[:, 0] += np.cos(angle) * path
    qpos[:, 1] += np.sin(angle) * path
    return whole._replace(name=name, qpos=qpos, loops=False)


def main() -> int:
    """Run the command line; return the exit status."""
    args = tyro.cli(Args)
    args.out.mkdir(parents=True, exist_ok=True)
    bones, rng = skeleton.describe(skeleton.load_model()), np.random.default_rng(args.seed)
    for i in range(args.number):
        name = f"clip{i:06d}"
        native.write(args.out / f"{name}.npz", make(bones, rng, name), bones)
    print(f"{args.number:,} clips in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
