"""Check the split of motion clips: which clips are mirror images, and what training has seen.

python tools/clip_twins.py FOLDER

Compares the clips of a folder by the places of their bodies relative to the root's position and
heading. Twins are mirror images of each other, frame by frame. A frame of a test clip has been seen
if a frame of a training clip, or of its mirror image, is nearer than 2 cm (root mean square over
the bodies). The exit status is 1 if twins are on different sides of the split.
"""

import argparse
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jaxrl.config import clip_split
from jaxrl.motion import library, mirroring, skeleton
from jaxrl.motion.clip import FPS, resample
from jaxrl.motion.library import Reference

_NEAR = 0.02  # metres


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Compare motion clips with their split.")
    parser.add_argument("folder", type=Path)
    poses = _poses(parser.parse_args().folder)
    twins = [pair for pair in combinations(poses, 2) if _are_twins(*(poses[n] for n in pair))]
    torn = [pair for pair in twins if clip_split.is_test(pair[0]) != clip_split.is_test(pair[1])]
    listed = {frozenset(pair) for pair in clip_split.read().twins if set(pair) <= set(poses)}
    print(f"{len(poses)} clips, {len(twins)} pairs of twins")
    print("twins on different sides:", _names(torn))
    print("twins that the split does not list:", _names(p for p in twins if set(p) not in listed))
    print("listed, but no twins:", _names(listed - {frozenset(pair) for pair in twins}))
    print("\ntest clip: seen frames, and where the most")
    for name in filter(clip_split.is_test, poses):
        print(f"{name}: {_seen(name, poses)}")
    return int(bool(torn))


def _names(pairs) -> str:
    return ", ".join(" = ".join(sorted(pair)) for pair in pairs) or "none"


def _poses(folder: Path) -> dict[str, np.ndarray]:
    """Return each clip's body positions [2, F, J, 3] in the heading frame, and mirrored."""
    model = skeleton.load_model()
    bones = skeleton.describe(model)
    mirror = mirroring.build(bones, np.zeros(0, int))
    found = {}
    for clip in library.read_clips(str(folder), model):
        motion = library.build_on_cpu([resample(clip, FPS, model)], model).reference
        found[clip.name] = np.stack([_local(motion), _local(mirror.reference(motion))])
    return found


def _local(motion: Reference) -> np.ndarray:
    position, root = np.asarray(motion.position), np.asarray(motion.qpos)
    yaw = -2.0 * np.arctan2(root[:, 6], root[:, 3])
    x, y, z = np.moveaxis(position - position[:, :1] * [1.0, 1.0, 0.0], -1, 0)
    cos, sin = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], -1)


def _are_twins(one: np.ndarray, other: np.ndarray) -> bool:
    same_length = one.shape == other.shape
    return same_length and _distances(one[0], other[1]).max() < _NEAR


def _distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.sum(np.square(one - other), -1), -1))


def _seen(name: str, poses: dict[str, np.ndarray]) -> str:
    """Return the fraction of a clip's frames that all training clips, and one of them, show."""
    bodies = poses[name].shape[2]
    frames = poses[name][0].reshape(-1, 3 * bodies)
    near = {}
    for other in poses:
        if not clip_split.is_test(other):
            distance, _ = KDTree(poses[other].reshape(-1, 3 * bodies)).query(frames)
            near[other] = np.asarray(distance) / np.sqrt(bodies) < _NEAR
    together, (most, share) = np.any(list(near.values()), axis=0), _most(near)
    return f"{together.mean():.0%}" + (f", {share:.0%} in {most}" if share else "")


def _most(near: dict[str, np.ndarray]) -> tuple[str, float]:
    name = max(near, key=lambda each: near[each].mean())
    return name, float(near[name].mean())


if __name__ == "__main__":
    sys.exit(main())
