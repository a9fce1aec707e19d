"""Episodes in HDF5 files, as robomimic and LIBERO write them.

    data/demo_0/actions, rewards, dones, obs/<key>, next_obs/<key> (LIBERO has none)
    data/demo_0/truncated (ours alone): 1 where a time limit cut the episode, and `dones` is 0
    mask/<name>: demos that belong to a part of the data

Nothing in a file is believed before it was looked at: whatever is missing, damaged or not finite
is reported with the file, the demo and the key.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.errors import UserError, nearest
from jaxrl.types import ActionSpec
from jaxrl.utils import host_memory

SUFFIXES = (".hdf5", ".h5")


class Place(NamedTuple):
    """Where an episode lies."""

    file: Path
    demo: str

    def __str__(self) -> str:
        return f"{self.file.name}: {self.demo}"


class Episode(NamedTuple):
    """One recorded episode of T steps."""

    obs: dict[str, np.ndarray]  # [T, ...] each
    next_obs: dict[str, np.ndarray]
    action: np.ndarray  # [T, actions]
    reward: np.ndarray  # float32 [T]
    terminated: bool = False  # by its last step; otherwise the episode was truncated there


def h5py() -> Any:
    """Import h5py, or say how to get it."""
    try:
        import h5py
    except ImportError as error:
        raise UserError("Recorded episodes need h5py: pip install 'jaxrl[offline]'.") from error
    return h5py


def files(path: Path) -> list[Path]:
    """Return the file meant, or the HDF5 files of a folder in order."""
    if path.is_file():
        return [path]
    inside = path.glob("*") if path.is_dir() else ()
    found = sorted(p for p in inside if p.suffix in SUFFIXES and p.is_file())
    if not found:
        kind = "no such file or folder" if not path.exists() else "a folder without .hdf5 files"
        raise UserError(f"--data.path: '{path}': {kind}.")
    return found


# What h5py raises where the bytes of a file make no sense, by what they were meant to be.
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
    """Let an error of reading say what could not be read."""
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


def places(path: Path, part: str | None = None) -> list[Place]:
    """Return all episodes, or those of a part, by number."""
    found = []
    for file in files(path):
        with opened(file) as handle:
            if "data" not in handle:
                raise UserError(f"'{file}' has no group 'data': is it robomimic's or LIBERO's?")
            demos = [name for name in handle["data"] if re.fullmatch(r"demo_\d+", name)]
            if part is not None:
                demos = _of_part(file, handle, part, demos)
        found += [Place(file, demo) for demo in sorted(demos, key=lambda d: int(d[5:]))]
    if not found:
        which = f" of the part '{part}'" if part else ""
        raise UserError(f"'{path}' holds no episodes{which} (data/demo_0, data/demo_1, ...).")
    return found


def action_spec(file: Path) -> ActionSpec | None:
    """Return what the actions of our own recordings are; None for other people's files."""
    with opened(file) as handle:
        try:
            told = json.loads(handle["data"].attrs["env_args"])["action"]
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
    match told:
        case {"size": int(size), "discrete": bool(discrete)} if size > 0:
            return ActionSpec(size, discrete)
    raise UserError(f"'{file}': 'env_args' says of its actions {told}: no size, or no kind.")


def _of_part(file: Path, handle: Any, part: str, demos: list[str]) -> list[str]:
    masks = handle.get("mask", {})
    if part not in masks:
        raise UserError(
            f"--data.part: '{file}' has no mask '{part}'.{nearest(part, masks)} "
            f"It has: {', '.join(masks) or 'none'}."
        )
    host_memory.check_fits(f"'{file}': mask '{part}'", masks[part].nbytes)
    wanted = {n.decode() if isinstance(n, bytes) else str(n) for n in masks[part][:]}
    missing = sorted(wanted - set(demos))
    if missing:
        raise UserError(f"'{file}': mask '{part}' names {missing[0]}, which is not there.")
    return [demo for demo in demos if demo in wanted]


def read(place: Place, keys: tuple[str, ...] = ()) -> Episode:
    """Read one episode; without keys, all of its observations."""
    with opened(place.file) as handle, _readable(str(place)):
        group = handle["data"][place.demo]
        action = _array(place, group, "actions")
        reward = _array(place, group, "rewards").astype(np.float32)
        obs_group = group.get("obs")
        if obs_group is None:
            raise UserError(f"{place}: 'obs' is missing.")
        names = keys or tuple(sorted(obs_group))
        if not names:
            raise UserError(f"{place}: 'obs' is empty.")
        obs = {key: _seen(place, obs_group, key, "obs/") for key in names}
        then = group.get("next_obs")
        next_obs = {
            key: _seen(place, then, key, "next_obs/") if then is not None else _shifted(obs[key])
            for key in names
        }
        terminated = "dones" in group and bool(np.any(_array(place, group, "dones")[-1]))
    _check_lengths(place, action, reward, obs, next_obs)
    _check_successors(place, obs, next_obs)
    action = action.astype(np.float32).reshape(len(action), -1)
    return Episode(obs, next_obs, action, reward, terminated)


def _array(place: Place, group: Any, key: str, prefix: str = "") -> np.ndarray:
    """Read one dataset: there, readable, numbers, and finite in the precision that is kept."""
    name = prefix + key
    with _readable(f"{place}: '{name}'"):
        if key not in group:
            raise UserError(f"{place}: '{name}' is missing.{nearest(key, list(group))}")
        stored = group[key]
        if stored.external:
            raise UserError(f"{place}: '{name}' lies in other files, which are never read.")
        dtype, shape = stored.dtype, stored.shape or ()
        size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "fiub":
        raise UserError(f"{place}: '{name}' holds {dtype}, not numbers.")
    if not shape or not shape[0]:
        raise UserError(f"{place}: '{name}' has no steps.")
    host_memory.check_fits(f"{place}: '{name}', {dtype}{list(shape)},", size)
    with _readable(f"{place}: '{name}'"):
        data = np.asarray(stored[()])
    if data.dtype.kind != "f":
        return data
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        data = data.astype(np.float32)
    if not np.isfinite(data).all():
        first = int(np.argwhere(~np.isfinite(data))[0, 0])
        raise UserError(f"{place}: '{name}' is not finite at step {first}, in single precision.")
    return data


def _seen(place: Place, group: Any, key: str, prefix: str) -> np.ndarray:
    """Read one observation: a vector for each step, or a picture in bytes."""
    data = _array(place, group, key, prefix)
    if data.dtype == np.uint8 and data.ndim == 4:
        return data
    if data.ndim > 2:
        raise UserError(
            f"{place}: '{prefix}{key}' is {data.dtype}{list(data.shape[1:])}, neither a vector nor "
            "a picture in bytes: name the observations to look at by --data.obs-keys."
        )
    return data.astype(np.float32).reshape(len(data), -1)


def _check_lengths(
    place: Place, action: np.ndarray, reward: np.ndarray, obs: dict, next_obs: dict
) -> None:
    if reward.ndim != 1:
        raise UserError(f"{place}: 'rewards' has the shape {reward.shape}, not one per step.")
    named = {"actions": action} | {f"obs/{k}": v for k, v in obs.items()}
    named |= {f"next_obs/{k}": v for k, v in next_obs.items()}
    for name, data in named.items():
        if len(data) != len(reward):
            raise UserError(
                f"{place}: '{name}' has {len(data)} steps, but 'rewards' has {len(reward)}."
            )


def _check_successors(place: Place, obs: dict, next_obs: dict) -> None:
    """What follows must look like what was seen: rewards are learnt from their difference."""
    for key, data in obs.items():
        if (then := next_obs[key]).shape != data.shape:
            raise UserError(
                f"{place}: 'next_obs/{key}' is {list(then.shape[1:])}, but 'obs/{key}' is "
                f"{list(data.shape[1:])}."
            )


def _shifted(obs: np.ndarray) -> np.ndarray:
    """Return the next observations where a file has none: the last one repeats."""
    return np.concatenate([obs[1:], obs[-1:]])
