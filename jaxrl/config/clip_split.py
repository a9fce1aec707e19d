"""Which motion clips are for training, and which only for testing: those of DeepMimic, by name.

`experiments/imitation/split.json` is the same file. Many clips are mirror images of one another:
such twins are on one side of the split.
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

Split = Literal["all", "train", "test"]
SUFFIXES = (".txt", ".json", ".npz")  # of motion files


class ClipSplit(NamedTuple):
    """Names of clips."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    twins: tuple[tuple[str, str], ...]  # mirror images of each other


@functools.cache
def read() -> ClipSplit:
    """Return the split."""
    content = json.loads(Path(__file__).with_name("clip_split.json").read_text(encoding="utf-8"))
    twins = tuple((one, other) for one, other in content["twins"])
    return ClipSplit(tuple(content["train"]), tuple(content["test"]), twins)


def is_test(name: str) -> bool:
    """Return whether a clip of this name is for testing; clips of other names are for training."""
    return name in read().test


def chosen(files: Iterable[Path], split: Split) -> list[Path]:
    """Return the files whose clips belong to a part of the split."""
    return [file for file in files if split == "all" or is_test(file.stem) == (split == "test")]


def test_clips(path: Path) -> list[str]:
    """Return the names of the test clips among the motion files of a folder, or a file."""
    files = path.iterdir() if path.is_dir() else [path]
    return sorted(f.stem for f in files if f.suffix in SUFFIXES and is_test(f.stem))
