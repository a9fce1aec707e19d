"""Episodes in HDF5 files, as robomimic and LIBERO write them.

    data/demo_0/actions, rewards, dones, obs/<key>, next_obs/<key> (LIBERO has none)
    data/demo_0/truncated (ours alone): 1 where a time limit cut the episode, and `dones` is 0
    mask/<name>: demos that belong to a part of the data

Files are validated before use: whatever is missing, damaged or not finite is reported with the
file, the demo and the key.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.errors import UserError, install, nearest
from jaxrl.types import ActionSpec
from jaxrl.utils import atomic_io, host_memory
from jaxrl.utils.formatting import plural

SUFFIXES = (".hdf5", ".h5")

# Bytes. To ask how much memory is left takes longer than to read a small array.
_SMALL = 2**20


class EpisodeRef(NamedTuple):
    """Where an episode is stored."""

    file: Path
    demo: str

    def __str__(self) -> str:
        return f"{self.file.name}: {self.demo}"


class Episode(NamedTuple):
    """One recorded episode of T steps."""

    obs: Any  # dict of arrays [T, ...], or one array (`Dataset.read`)
    next_obs: Any
    action: np.ndarray  # [T, actions]
    reward: np.ndarray  # float32 [T]
    terminated: bool = False  # by its last step; otherwise the episode was truncated there


def h5py() -> Any:
    """Import h5py, or say how to install it."""
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"Recorded episodes need h5py: {install('offline')}.") from error
    return h5py


def files(path: Path) -> list[Path]:
    """Return the file itself, or the HDF5 files of a folder in order."""
    if path.is_file():
        return [path]
    inside = path.glob("*") if path.is_dir() else ()
    found = sorted(p for p in inside if p.suffix in SUFFIXES and p.is_file())
    if not found:
        kind = "no such file or folder" if not path.exists() else "a folder without .hdf5 files"
        raise UserError(f"--data.path: '{path}': {kind}.")
    return found


# What h5py raises for damaged files.
_DAMAGE = (
    OSError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    MemoryError,
)


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn h5py's errors into a UserError that names what could not be read."""
    try:
        yield
    except _DAMAGE as error:
        raise UserError(
            f"{what} cannot be read: it is damaged, cut short, or no HDF5 file "
            f"({str(error).partition(chr(10))[0][:120]}). Pickles are never read."
        ) from error


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Any]:
    """Open a file for reading."""
    with _readable(f"'{file}'"), h5py().File(file, "r") as handle:
        yield handle


def list_episodes(path: Path, part: str | None = None) -> list[EpisodeRef]:
    """Return all episodes, or those of a part, by number."""
    refs = []
    for file in files(path):
        with opened(file) as handle:
            if "data" not in handle:
                raise UserError(f"'{file}' has no group 'data': is it robomimic's or LIBERO's?")
            demos = [name for name in handle["data"] if re.fullmatch(r"demo_\d+", name)]
            if part is not None:
                demos = _of_part(file, handle, part, demos)
        refs += [EpisodeRef(file, demo) for demo in sorted(demos, key=lambda d: int(d[5:]))]
    if not refs:
        which = f" of the part '{part}'" if part else ""
        raise UserError(f"'{path}' holds no episodes{which} (data/demo_0, data/demo_1, ...).")
    return refs


def action_spec(file: Path) -> ActionSpec | None:
    """Return the action spec that this package's recordings store; None for other files."""
    with opened(file) as handle:
        try:
            stored = json.loads(handle["data"].attrs["env_args"])["action"]
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
    match stored:
        case {"size": int(size), "discrete": bool(discrete)} if size > 0:
            return ActionSpec(size, discrete)
    raise UserError(f"'{file}': 'env_args' has the action spec {stored}, without a size or a kind.")


def _of_part(file: Path, handle: Any, part: str, demos: list[str]) -> list[str]:
    masks = handle.get("mask", {})
    if part not in masks:
        raise UserError(
            f"--data.part: '{file}' has no mask '{part}'.{nearest(part, masks)} "
            f"It has: {', '.join(masks) or 'none'}."
        )
    host_memory.check_fits(f"'{file}': mask '{part}'", masks[part].nbytes)
    chosen = {n.decode() if isinstance(n, bytes) else str(n) for n in masks[part][:]}
    missing = sorted(chosen - set(demos))
    if missing:
        raise UserError(f"'{file}': mask '{part}' names {missing[0]}, which is not there.")
    return [demo for demo in demos if demo in chosen]


def read(ref: EpisodeRef, keys: tuple[str, ...] = ()) -> Episode:
    """Read one episode; without keys, all of its observations."""
    with opened(ref.file) as handle, _readable(str(ref)):
        group = handle["data"][ref.demo]
        action = _array(ref, group, "actions")
        reward = _array(ref, group, "rewards").astype(np.float32)
        obs_group = group.get("obs")
        if obs_group is None:
            raise UserError(f"{ref}: 'obs' is missing.")
        names = keys or tuple(sorted(obs_group))
        if not names:
            raise UserError(f"{ref}: 'obs' is empty.")
        obs = {key: _obs(ref, obs_group, key, "obs/") for key in names}
        next_group = group.get("next_obs")
        next_obs = {
            key: _obs(ref, next_group, key, "next_obs/")
            if next_group is not None
            else _shifted(obs[key])
            for key in names
        }
        terminated = "dones" in group and bool(np.any(_array(ref, group, "dones")[-1]))
    _check_lengths(ref, action, reward, obs, next_obs)
    _check_successors(ref, obs, next_obs)
    action = action.astype(np.float32).reshape(len(action), -1)
    return Episode(obs, next_obs, action, reward, terminated)


def _array(ref: EpisodeRef, group: Any, key: str, prefix: str = "") -> np.ndarray:
    """Read one HDF5 dataset of numbers that are finite in single precision."""
    name = prefix + key
    with _readable(f"{ref}: '{name}'"):
        if key not in group:
            raise UserError(f"{ref}: '{name}' is missing.{nearest(key, list(group))}")
        stored = group[key]
        if stored.external:
            raise UserError(f"{ref}: '{name}' is stored in other files, which are never read.")
        dtype, shape = stored.dtype, stored.shape or ()
        size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "fiub":
        raise UserError(f"{ref}: '{name}' holds {dtype}, not numbers.")
    if not shape or not shape[0]:
        raise UserError(f"{ref}: '{name}' has no steps.")
    if size > _SMALL:
        host_memory.check_fits(f"{ref}: '{name}', {dtype}{list(shape)},", size)
    with _readable(f"{ref}: '{name}'"):
        data = np.asarray(stored[()])
    if data.dtype.kind != "f":
        return data
    with np.errstate(over="ignore"):  # values that overflow become infinite, and are refused
        data = data.astype(np.float32)
    if not np.isfinite(data).all():
        first = int(np.argwhere(~np.isfinite(data))[0, 0])
        raise UserError(f"{ref}: '{name}' is not finite at step {first}, in single precision.")
    return data


def _obs(ref: EpisodeRef, group: Any, key: str, prefix: str) -> np.ndarray:
    """Read one observation: a vector for each step, or an image in bytes."""
    data = _array(ref, group, key, prefix)
    if data.dtype == np.uint8 and data.ndim == 4:
        return data
    if data.ndim > 2:
        raise UserError(
            f"{ref}: '{prefix}{key}' is {data.dtype}{list(data.shape[1:])}, neither a vector nor "
            "an image in bytes: choose observations by --data.obs-keys."
        )
    return data.astype(np.float32).reshape(len(data), -1)


def _check_lengths(
    ref: EpisodeRef, action: np.ndarray, reward: np.ndarray, obs: dict, next_obs: dict
) -> None:
    if reward.ndim != 1:
        raise UserError(f"{ref}: 'rewards' has the shape {reward.shape}, not one per step.")
    named = {"actions": action} | {f"obs/{k}": v for k, v in obs.items()}
    named |= {f"next_obs/{k}": v for k, v in next_obs.items()}
    for name, data in named.items():
        if len(data) != len(reward):
            raise UserError(
                f"{ref}: '{name}' has {plural(len(data), 'step')}, but 'rewards' has {len(reward)}."
            )


def _check_successors(ref: EpisodeRef, obs: dict, next_obs: dict) -> None:
    """Raise UserError unless next observations have the shapes of observations."""
    for key, data in obs.items():
        if (successor := next_obs[key]).shape != data.shape:
            raise UserError(
                f"{ref}: 'next_obs/{key}' is {list(successor.shape[1:])}, but 'obs/{key}' is "
                f"{list(data.shape[1:])}."
            )


def _shifted(obs: np.ndarray) -> np.ndarray:
    """Return the next observations where a file has none: the last one repeats."""
    return np.concatenate([obs[1:], obs[-1:]])


def write(
    path: Path, episodes: list[Episode], env_args: dict[str, Any], parts: dict[str, list[int]]
) -> None:
    """Write episodes; the file is replaced atomically."""
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
    # Truncation is no termination: `dones` is what readers bootstrap by.
    group["dones"], group["truncated"] = last & episode.terminated, last & (not episode.terminated)
    for name, parts in (("obs", episode.obs), ("next_obs", episode.next_obs)):
        for key, values in parts.items():
            group.create_dataset(f"{name}/{key}", data=values, compression="lzf")
