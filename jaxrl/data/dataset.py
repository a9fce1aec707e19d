"""A dataset of recorded episodes: scanned once, then passed to the device in chunks that fit.

A chunk is a replay buffer with one row: complete episodes one after the other.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode, EpisodeRef
from jaxrl.errors import UserError
from jaxrl.learning.episode_index import EpisodeIndex
from jaxrl.learning.normalizer import RunningStats
from jaxrl.learning.replay_buffer import Ring, Transition
from jaxrl.types import ActionSpec, EnvSpec
from jaxrl.utils.formatting import plural


@dataclass(frozen=True)
class Dataset:
    """Episodes on disk, and what a scan found in them."""

    keys: tuple[str, ...]
    training: list[EpisodeRef]
    held_out: list[EpisodeRef]
    spec: EnvSpec
    obs_stats: RunningStats  # of the training observations
    lengths: dict[EpisodeRef, int]
    returns: dict[EpisodeRef, float]
    chunk_size: int  # most steps in one chunk
    max_action: float  # largest absolute value of a continuous action
    summed: bool = False  # give each episode's return at its end, and 0 before
    _cached: dict[int, tuple[Ring, EpisodeIndex]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """One: episodes are stored end to end."""
        return 1

    @property
    def longest(self) -> int:
        """Steps of the longest episode."""
        return max(self.lengths.values())

    @property
    def steps(self) -> int:
        """Steps of all training episodes."""
        return sum(self.lengths[ref] for ref in self.training)

    @property
    def chunks(self) -> list[list[EpisodeRef]]:
        """Training episodes in order, as many in each chunk as fit."""
        chunks, size = [[]], 0
        for episode in self.training:
            if chunks[-1] and size + self.lengths[episode] > self.chunk_size:
                chunks.append([])
                size = 0
            chunks[-1].append(episode)
            size += self.lengths[episode]
        return chunks

    @property
    def chunk_steps(self) -> int:
        """Steps of the largest chunk: all are padded to it, so that one program serves them."""
        return max(sum(self.lengths[e] for e in chunk) for chunk in self.chunks)

    @property
    def return_span(self) -> float:
        """Difference between the highest and the lowest return."""
        values = [self.returns[episode] for episode in self.training]
        return max(values) - min(values)

    def returns_vary(self) -> bool:
        """Return whether returns differ: no reward can be learnt from equal ones."""
        values = np.array([self.returns[episode] for episode in self.training])
        return bool(values.std() > 1e-6 * max(1.0, np.abs(values).max()))

    def read(self, ref: EpisodeRef) -> Episode:
        """Read one episode as networks take it.

        An observation with one key is an array, and discrete actions are int32 [T].
        """
        episode = hdf5.read(ref, self.keys)
        episode = episode._replace(obs=_plain(episode.obs), next_obs=_plain(episode.next_obs))
        if not self.spec.action.discrete:
            return episode
        return episode._replace(action=episode.action[:, 0].astype(np.int32))

    def _read_to_learn(self, ref: EpisodeRef) -> Episode:
        """Read one episode with the rewards that policies learn from."""
        episode = self.read(ref)
        return episode._replace(reward=_summed(episode.reward)) if self.summed else episode

    def held_out_steps(self, max_bytes: int) -> Transition | None:
        """Return transitions of held-out episodes, as many as fit; None if there are none."""
        episodes, size = [], 0
        for ref in self.held_out:
            episodes.append(self._read_to_learn(ref))
            size += sum(leaf.nbytes for leaf in jax.tree.leaves(episodes[-1][:3]))
            if size > max_bytes:
                break
        if not episodes:
            return None
        steps = sum(len(e.reward) for e in episodes)
        ring, _ = _as_replay(episodes, steps)
        return jax.tree.map(lambda leaf: leaf[0], ring.steps)

    def chunk(self, number: int) -> tuple[Ring, EpisodeIndex]:
        """Return a chunk as a replay buffer with one row; the last one read is cached."""
        if number not in self._cached:
            self._cached.clear()
            episodes = [self._read_to_learn(ref) for ref in self.chunks[number]]
            self._cached[number] = _as_replay(episodes, self.chunk_steps)
        return self._cached[number]


def scan(
    path: Path,
    *,
    keys: tuple[str, ...],
    part: str | None,
    holdout: float,
    chunk_size: int,
    summed: bool = False,
    progress: Callable[[list[EpisodeRef]], Iterable[EpisodeRef]] = lambda refs: refs,
) -> Dataset:
    """Read every episode once: validate it, and collect lengths, returns and statistics."""
    refs = hdf5.list_episodes(path, part)
    discrete = _discrete_actions(refs)
    held_out = _held_out(refs, holdout)
    training = set(refs) - set(held_out)
    sums, lengths, returns, shapes, max_action = _Sums(), {}, {}, None, 0.0
    for ref in progress(refs):
        episode = hdf5.read(ref, keys)
        keys = keys or tuple(sorted(episode.obs))  # those of the first, which all must have
        shapes = _same_shapes(ref, episode, shapes)
        _check_discrete(ref, episode.action, discrete)
        max_action = max(max_action, float(np.abs(episode.action).max()))
        lengths[ref], returns[ref] = len(episode.reward), float(episode.reward.sum())
        if ref in training:
            sums.add(episode.obs)
    if (longest := max(lengths.values())) > chunk_size:
        raise UserError(
            f"--offpolicy.buffer-size {chunk_size} is less than the longest episode, "
            f"{plural(longest, 'step')}."
        )
    assert shapes is not None  # there is an episode: `list_episodes`
    spec = _spec(shapes, discrete)
    used = [ref for ref in refs if ref in training]
    stats = sums.stats(shapes[0])
    stats = stats.replace(mean=_plain(stats.mean), variance=_plain(stats.variance))
    return Dataset(
        keys, used, held_out, spec, stats, lengths, returns, chunk_size, max_action, summed
    )


def _held_out(refs: list[EpisodeRef], fraction: float) -> list[EpisodeRef]:
    """Return the episodes for validation, the same for all seeds.

    A random choice would differ in a run that is resumed with another seed, which would then be
    validated on training episodes. So a hash of names decides, wherever the files are.
    """

    def digest(ref: EpisodeRef) -> bytes:
        return hashlib.sha256(f"{ref.file.name}/{ref.demo}".encode()).digest()

    number = min(round(fraction * len(refs)), len(refs) - 1)
    chosen = set(sorted(refs, key=digest)[:number])
    return [ref for ref in refs if ref in chosen]


def _spec(shapes: Any, discrete: ActionSpec | None) -> EnvSpec:
    obs, actions = shapes
    return EnvSpec(_plain(obs), discrete or ActionSpec(actions, discrete=False))


def _plain(obs: dict[str, Any]) -> Any:
    """Return an observation as networks take it: one with a single key is its array."""
    return next(iter(obs.values())) if len(obs) == 1 else obs


def _discrete_actions(refs: list[EpisodeRef]) -> ActionSpec | None:
    """Return the spec of discrete actions, which this package's recordings store; else None."""
    specs: dict[Path, ActionSpec | None] = {}
    for file in dict.fromkeys(ref.file for ref in refs):
        spec = hdf5.action_spec(file)
        specs[file] = spec if spec and spec.discrete else None
    first, *others = specs
    for file in others:
        if specs[file] != specs[first]:
            kinds = [
                f"{s.size} discrete ones" if s else "continuous"
                for s in map(specs.get, (first, file))
            ]
            raise UserError(
                f"--data.path: the actions of '{first.name}' are {kinds[0]}, those of "
                f"'{file.name}' are {kinds[1]}: files of one folder must agree."
            )
    return specs[first]


def _check_discrete(ref: EpisodeRef, action: np.ndarray, spec: ActionSpec | None) -> None:
    """Raise UserError unless discrete actions are integers below their number."""
    if spec is None:
        return
    if action.shape[1] != 1:
        raise UserError(
            f"{ref}: 'actions' has {action.shape[1]} values for each step; a discrete action has "
            "one."
        )
    wrong = (action != np.floor(action)) | (action < 0) | (action >= spec.size)
    if wrong.any():
        step = int(np.argmax(wrong[:, 0]))
        raise UserError(
            f"{ref}: 'actions' is {action[step, 0]:g} at step {step}, not an integer from 0 to "
            f"{spec.size - 1}."
        )


def _same_shapes(ref: EpisodeRef, episode: Episode, first: Any) -> Any:
    obs = {k: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for k, v in sorted(episode.obs.items())}
    shapes = (obs, episode.action.shape[1])
    if first is not None and shapes != first:
        for key in sorted(first[0].keys() | obs.keys()):
            was, now = first[0].get(key), obs.get(key)
            if was != now:
                raise UserError(
                    f"{ref}: 'obs/{key}' is {now and now.shape}, earlier episodes have "
                    f"{was and was.shape}."
                )
        raise UserError(f"{ref}: 'actions' has {shapes[1]} values, others have {first[1]}.")
    return shapes


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

    def stats(self, obs: dict[str, jax.ShapeDtypeStruct]) -> RunningStats:
        mean, variance = {}, {}
        for key, shape in obs.items():
            first = self.first.get(key, np.zeros(shape.shape)) / max(self.count, 1)
            second = self.second.get(key, np.ones(shape.shape) * self.count) / max(self.count, 1)
            mean[key] = np.float32(first)
            with np.errstate(over="ignore"):
                variance[key] = np.float32(np.maximum(second - np.square(first), 1e-12))
            if not np.isfinite(variance[key]).all():
                raise UserError(
                    f"--data.obs-keys: 'obs/{key}' has values too large to be normalised in "
                    "single precision: leave it out, or scale it down."
                )
        return RunningStats(np.float32(self.count), mean, variance)  # type: ignore[arg-type]


def _endings(episode: Episode) -> np.ndarray:
    """Return bool [T]: which steps terminate the episode."""
    steps = len(episode.reward)
    return (np.arange(steps) == steps - 1) & episode.terminated


def _summed(reward: np.ndarray) -> np.ndarray:
    """Return an episode's rewards with all of them summed at its last step."""
    return np.where(np.arange(len(reward)) == len(reward) - 1, reward.sum(), 0.0).astype(np.float32)


def _as_replay(episodes: list[Episode], steps: int) -> tuple[Ring, EpisodeIndex]:
    """Store episodes end to end in one row of `steps`; the padding is never sampled."""

    def row(arrays: list[np.ndarray]) -> np.ndarray:
        joined = np.concatenate(arrays)
        rest = np.zeros((steps - len(joined), *joined.shape[1:]), joined.dtype)
        return np.concatenate([joined, rest])[None]

    def rows(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: row(list(leaves)), *trees)

    # NumPy arrays, where the types expect JAX's.
    lengths = [len(e.reward) for e in episodes]
    starts, used = np.cumsum([0, *lengths[:-1]]), sum(lengths)
    transitions: dict[str, Any] = {
        "obs": rows([e.obs for e in episodes]),
        "action": row([e.action for e in episodes]),
        "reward": row([e.reward for e in episodes]),
        "terminated": row([_endings(e) for e in episodes]),
        "next_obs": rows([e.next_obs for e in episodes]),
    }
    length, episode_return = np.zeros((1, steps), np.int32), np.zeros((1, steps), np.float32)
    length[0, starts] = lengths
    episode_return[0, starts] = [e.reward.sum() for e in episodes]
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
    return Ring(Transition(**transitions), index["end"]), EpisodeIndex(**index)
