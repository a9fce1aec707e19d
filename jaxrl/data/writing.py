"""Episodes to an HDF5 file in robomimic's layout."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.data.hdf5 import Episode, h5py
from jaxrl.utils import atomic_io


def write(
    path: Path, episodes: list[Episode], env_args: dict[str, Any], parts: dict[str, list[int]]
) -> None:
    """Write episodes; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_io.drafted(path) as draft, h5py().File(draft, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(len(e.reward) for e in episodes)
        data.attrs["env_args"] = json.dumps(env_args)
        for number, episode in enumerate(episodes):
            _write_one(data.create_group(f"demo_{number}"), episode)
        masks = file.create_group("mask")
        for name, numbers in parts.items():
            masks[name] = np.array([f"demo_{n}" for n in numbers], dtype="S")


def _write_one(group: Any, episode: Episode) -> None:
    steps = len(episode.reward)
    group.attrs["num_samples"] = steps
    group["actions"], group["rewards"] = episode.action, episode.reward
    last = np.arange(steps) == steps - 1
    # A time limit does not end the task: whoever bootstraps by `dones` must not stop there.
    group["dones"], group["truncated"] = last & episode.terminated, last & (not episode.terminated)
    for name, parts in (("obs", episode.obs), ("next_obs", episode.next_obs)):
        for key, values in parts.items():
            group.create_dataset(f"{name}/{key}", data=values, compression="lzf")
