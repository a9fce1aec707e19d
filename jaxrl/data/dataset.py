"""A data set of episodes: looked through once, then handed to the device in pieces that fit.

A piece is a store with one row: whole episodes one after the other, as replay would keep them.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode, Place
from jaxrl.errors import UserError
from jaxrl.learning import episode_index
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Ring, Transition
from jaxrl.types import ActionSpec, EnvSpec


@dataclass(frozen=True)
class DataSet:
    """Episodes on disk, and what was found when they were looked through."""

    keys: tuple[str, ...]
    training: list[Place]
    held_out: list[Place]
    spec: EnvSpec
    moments: RunningStats  # of the training observations
    lengths: dict[Place, int]
    returns: dict[Place, float]
    room: int  # most steps in one piece
    _kept: dict[int, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """One: episodes lie end to end."""
        return 1

    @property
    def longest(self) -> int:
        """Steps of the longest episode."""
        return max(self.lengths.values())

    @property
    def steps(self) -> int:
        """Steps of all training episodes."""
        return sum(self.lengths[place] for place in self.training)

    @property
    def pieces(self) -> list[list[Place]]:
        """Training episodes in order, as many in each piece as there is room for."""
        pieces, size = [[]], 0
        for place in self.training:
            if pieces[-1] and size + self.lengths[place] > self.room:
                pieces.append([])
                size = 0
            pieces[-1].append(place)
            size += self.lengths[place]
        return pieces

    @property
    def piece_steps(self) -> int:
        """Steps of the largest piece: all are given that size, so that one program serves them."""
        return max(sum(self.lengths[place] for place in piece) for piece in self.pieces)

    def varies(self) -> bool:
        """Tell whether returns differ: what always returns the same teaches no reward."""
        values = np.array([self.returns[place] for place in self.training])
        return bool(values.std() > 1e-6 * max(1.0, np.abs(values).max()))

    def read(self, place: Place) -> Episode:
        """Read one episode as networks take it: choices are whole numbers, one for each step."""
        episode = hdf5.read(place, self.keys)
        if not self.spec.action.discrete:
            return episode
        return episode._replace(action=episode.action[:, 0].astype(np.int32))

    def piece(self, number: int) -> tuple[Ring, episode_index.EpisodeIndex]:
        """Return a piece as a store with one row; the last one read is kept."""
        if number not in self._kept:
            self._kept.clear()
            self._kept[number] = _as_store(
                [self.read(place) for place in self.pieces[number]], self.piece_steps
            )
        return self._kept[number]


def look_through(
    path: Path,
    *,
    keys: tuple[str, ...],
    part: str | None,
    holdout: float,
    room: int,
    progress: Callable[[list[Place]], Iterable[Place]] = lambda places: places,
) -> DataSet:
    """Read every episode once: check it, and note lengths, returns and statistics."""
    found = hdf5.places(path, part)
    told = _told_actions(found)
    held_out = _held_out(found, holdout)
    training = set(found) - set(held_out)
    sums, lengths, returns, shapes = _Sums(), {}, {}, None
    for place in progress(found):
        episode = hdf5.read(place, keys)
        keys = keys or tuple(sorted(episode.obs))  # what the first one has, all must have
        shapes = _same_shapes(place, episode, shapes)
        _check_choices(place, episode.action, told)
        lengths[place], returns[place] = len(episode.reward), float(episode.reward.sum())
        if place in training:
            sums.add(episode.obs)
    if (longest := max(lengths.values())) > room:
        raise UserError(
            f"--offpolicy.buffer-size {room} is less than the longest episode, {longest} steps."
        )
    spec = _spec(shapes, told)
    used = [place for place in found if place in training]
    return DataSet(keys, used, held_out, spec, sums.moments(spec.obs), lengths, returns, room)


def _held_out(found: list[Place], share: float) -> list[Place]:
    """Return the episodes to judge by, the same for all seeds.

    Chance would hold out others in a run that goes on with another seed: it would be judged by
    what the first part was taught. So names decide, wherever the files lie.
    """

    def lot(place: Place) -> bytes:
        return hashlib.sha256(f"{place.file.name}/{place.demo}".encode()).digest()

    number = min(round(share * len(found)), len(found) - 1)
    drawn = set(sorted(found, key=lot)[:number])
    return [place for place in found if place in drawn]


def _spec(shapes: Any, choices: ActionSpec | None) -> EnvSpec:
    obs, actions = shapes
    return EnvSpec(obs, choices or ActionSpec(actions, discrete=False))


def _told_actions(places: list[Place]) -> ActionSpec | None:
    """Return the choices that actions are, if they are choices: our own recordings say so."""
    choices: dict[Path, ActionSpec | None] = {}
    for file in dict.fromkeys(place.file for place in places):
        told = hdf5.action_spec(file)
        choices[file] = told if told and told.discrete else None
    first, *others = choices
    for file in others:
        if choices[file] != choices[first]:
            kinds = [
                f"{c.size} choices" if c else "numbers" for c in map(choices.get, (first, file))
            ]
            raise UserError(
                f"--data.path: the actions of '{first.name}' are {kinds[0]}, those of "
                f"'{file.name}' are {kinds[1]}: files of one folder must agree."
            )
    return choices[first]


def _check_choices(place: Place, action: np.ndarray, choices: ActionSpec | None) -> None:
    """A choice is a whole number below their count; what is none would be learnt as nothing."""
    if choices is None:
        return
    if action.shape[1] != 1:
        raise UserError(
            f"{place}: 'actions' has {action.shape[1]} numbers for each step, where one choice "
            "was to be."
        )
    wrong = (action != np.floor(action)) | (action < 0) | (action >= choices.size)
    if wrong.any():
        step = int(np.argmax(wrong[:, 0]))
        raise UserError(
            f"{place}: 'actions' is {action[step, 0]:g} at step {step}, not a choice from 0 to "
            f"{choices.size - 1}."
        )


def _same_shapes(place: Place, episode: Episode, known: Any) -> Any:
    obs = {k: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for k, v in sorted(episode.obs.items())}
    found = (obs, episode.action.shape[1])
    if known is not None and found != known:
        for key in sorted(known[0].keys() | obs.keys()):
            was, now = known[0].get(key), obs.get(key)
            if was != now:
                raise UserError(
                    f"{place}: 'obs/{key}' is {now and now.shape}, earlier episodes have "
                    f"{was and was.shape}."
                )
        raise UserError(f"{place}: 'actions' has {found[1]} numbers, others have {known[1]}.")
    return found


class _Sums:
    """Sums for means and variances, in double precision."""

    def __init__(self):
        self.count, self.first, self.second = 0, {}, {}

    def add(self, obs: dict[str, np.ndarray]) -> None:
        self.count += len(next(iter(obs.values())))
        for key, values in obs.items():
            if values.dtype != np.uint8:
                wide = values.astype(np.float64)
                self.first[key] = self.first.get(key, 0.0) + wide.sum(axis=0)
                self.second[key] = self.second.get(key, 0.0) + np.square(wide).sum(axis=0)

    def moments(self, obs: dict[str, jax.ShapeDtypeStruct]) -> RunningStats:
        mean, variance = {}, {}
        for key, shape in obs.items():
            first = self.first.get(key, np.zeros(shape.shape)) / max(self.count, 1)
            second = self.second.get(key, np.ones(shape.shape) * self.count) / max(self.count, 1)
            mean[key] = np.float32(first)
            with np.errstate(over="ignore"):
                variance[key] = np.float32(np.maximum(second - np.square(first), 1e-12))
            if not np.isfinite(variance[key]).all():
                raise UserError(
                    f"--data.obs-keys: 'obs/{key}' has numbers too large to be normalised in "
                    "single precision: leave it out, or scale it down."
                )
        return RunningStats(np.float32(self.count), mean, variance)  # type: ignore[arg-type]


def _endings(episode: Episode) -> np.ndarray:
    """Return [T]: after which steps nothing follows."""
    steps = len(episode.reward)
    return (np.arange(steps) == steps - 1) & episode.terminated


def _as_store(read: list[Episode], steps: int) -> tuple[Ring, episode_index.EpisodeIndex]:
    """Lay episodes end to end in one row of `steps`; what is left over is never drawn."""

    def row(arrays: list[np.ndarray]) -> np.ndarray:
        joined = np.concatenate(arrays)
        rest = np.zeros((steps - len(joined), *joined.shape[1:]), joined.dtype)
        return np.concatenate([joined, rest])[None]

    def rows(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: row(list(leaves)), *trees)

    # Arrays of the host, where the types speak of the device's.
    lengths = [len(e.reward) for e in read]
    starts, used = np.cumsum([0, *lengths[:-1]]), sum(lengths)
    taken: dict[str, Any] = {
        "obs": rows([e.obs for e in read]),
        "action": row([e.action for e in read]),
        "reward": row([e.reward for e in read]),
        "terminated": row([_endings(e) for e in read]),
        "next_obs": rows([e.next_obs for e in read]),
    }
    length, episode_return = np.zeros((1, steps), np.int32), np.zeros((1, steps), np.float32)
    length[0, starts] = lengths
    episode_return[0, starts] = [e.reward.sum() for e in read]
    one = np.zeros(1, np.int32)
    index: dict[str, Any] = {
        "age": row([np.arange(n, dtype=np.int32) for n in lengths]),
        "length": length,
        "episode_return": episode_return,
        "current_age": one,
        "current_return": one.astype(np.float32),
        "first": one,
        "end": one + np.int32(used),
        "next_first": one,
    }
    return Ring(Transition(**taken), index["end"]), episode_index.EpisodeIndex(**index)
