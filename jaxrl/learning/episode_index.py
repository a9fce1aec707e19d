"""An index of the episodes in a ring of steps: which are complete, where they start, their returns.

The length and return of a finished episode are stored at the place of its first step. Every step
has its age, so that any step of an episode finds them. An episode is complete from its end until
its first step is overwritten; then all of it is dropped. Adding a step touches one place per row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.learning import replay_buffer
from jaxrl.learning.replay_buffer import Ring
from jaxrl.types import Array, Key, PyTree


class EpisodeIndex(struct.PyTreeNode):
    """Episodes of a ring, [rows, ...] like it; steps are numbered from the first ever written."""

    age: Array  # int32 [rows, length], of each step within its episode
    length: Array  # int32 [rows, length], of the episode that starts here, once it is finished
    episode_return: Array  # float32 [rows, length], the sum of its rewards
    current_age: Array  # int32 [rows], of the episode in progress
    current_return: Array  # float32 [rows]
    first: Array  # int32 [rows], number of the first step of the oldest complete episode
    end: Array  # int32 [rows], number after the last step of the newest complete episode
    next_first: Array  # int32 [rows], what `first` becomes when the next steps are written


class EpisodeSamples(NamedTuple):
    """Steps of episodes, [episodes, K, ...], and what they belong to, [episodes]."""

    steps: PyTree
    length: Array
    episode_return: Array


def init(rows: int, length: int) -> EpisodeIndex:
    """Return the index of an empty ring."""
    per_row, per_step = jnp.zeros(rows, jnp.int32), jnp.zeros((rows, length), jnp.int32)
    return EpisodeIndex(
        age=per_step,
        length=per_step,
        episode_return=per_step.astype(jnp.float32),
        current_age=per_row,
        current_return=per_row.astype(jnp.float32),
        first=per_row,
        end=per_row,
        next_first=per_row,
    )


def add(index: EpisodeIndex, written: Array, reward: Array, ended: Array) -> EpisodeIndex:
    """Index steps [T, rows] that are written to a ring after `written` [rows] others."""
    size, count = index.age.shape[1], reward.shape[0]
    rows = jnp.arange(reward.shape[1])
    oldest = jnp.maximum(written + count - size, 0)  # number of the first that remains
    index = index.replace(first=index.next_first)

    def step(carry: tuple[EpisodeIndex, Array], inputs: tuple[Array, Array]):
        index, number = carry
        reward, ended = inputs
        episode_return = index.current_return + reward
        first = number - index.current_age
        # An episode longer than the ring lost its first step before it ended: it never counts.
        complete = ended & (first >= oldest)
        place = jnp.where(complete, first % size, size)  # beyond the end nothing is written
        index = index.replace(
            age=index.age.at[rows, number % size].set(index.current_age),
            length=index.length.at[rows, place].set(index.current_age + 1, mode="drop"),
            episode_return=index.episode_return.at[rows, place].set(episode_return, mode="drop"),
            current_age=jnp.where(ended, 0, index.current_age + 1),
            current_return=jnp.where(ended, 0.0, episode_return),
            first=jnp.where(ended & ~complete, number + 1, index.first),
            end=jnp.where(ended, number + 1, index.end),
        )
        return (index, number + 1), None

    (index, _), _ = jax.lax.scan(step, (index, written), (reward, ended))
    # Looked up now, after writing: reading what is about to be written over makes XLA copy it.
    next_oldest = jnp.maximum(written + 2 * count - size, 0)
    return index.replace(next_first=_first_after(index, next_oldest))


def _first_after(index: EpisodeIndex, oldest: Array) -> Array:
    """Return where complete episodes begin once the steps before `oldest` [rows] are lost."""
    size, rows = index.age.shape[1], jnp.arange(oldest.shape[0])
    age = index.age[rows, oldest % size]
    length = index.length[rows, (oldest - age) % size]
    first = jnp.where(age == 0, oldest, oldest - age + length)
    # Where the episode at the edge is unfinished, no complete one comes after it.
    first = jnp.where(oldest < index.end, first, jnp.maximum(index.end, oldest))
    return jnp.where(oldest > index.first, first, index.first)


def exclude_current(index: EpisodeIndex, rows: Array | bool = True) -> EpisodeIndex:
    """Return the index of an empty ring, some rows of which are amid episodes begun before it.

    Args:
      rows: bool [rows], which of them.
    """
    # As old as the ring: its first step is not in here when it ends, so it never counts.
    return index.replace(current_age=jnp.where(rows, index.age.shape[-1], index.current_age))


def restart_episodes(index: EpisodeIndex, ring: Ring, count: int) -> tuple[EpisodeIndex, Ring]:
    """Return index and ring for rows whose episodes in progress will not be continued.

    Complete episodes must lie in one stretch. So they change places with the steps of the
    unfinished episode, which are then the first to be overwritten by the next `count` steps.
    """
    size, written = index.age.shape[1], ring.written
    oldest = jnp.maximum(written - size, 0)
    stored = written - oldest
    shift = jnp.minimum(written - index.end, stored)  # places that complete episodes move by
    nth = (jnp.arange(size)[None] - oldest[:, None]) % size  # of the stored steps, at each place
    source = oldest[:, None] + (nth - shift[:, None]) % jnp.maximum(stored, 1)[:, None]
    order = jnp.where(nth < stored[:, None], source, jnp.arange(size)[None]) % size
    by_step = replay_buffer.reorder(
        (index.age, index.length, index.episode_return, ring.steps), order
    )
    index = index.replace(
        age=by_step[0],
        length=by_step[1],
        episode_return=by_step[2],
        current_age=jnp.zeros_like(index.current_age),
        current_return=jnp.zeros_like(index.current_return),
        first=index.first + shift,
        end=written,
    )
    next_oldest = jnp.maximum(written + count - size, 0)
    return index.replace(next_first=_first_after(index, next_oldest)), Ring(by_step[3], written)


def complete_range(index: EpisodeIndex) -> tuple[Array, Array]:
    """Return the numbers [first, end) of the steps of complete episodes, per row."""
    return index.first, jnp.maximum(index.end, index.first)


def sample_steps(
    index: EpisodeIndex, ring: Ring, key: Key, number: int, size: int, longest: int
) -> EpisodeSamples:
    """Sample `size` steps from each of `number` episodes, long ones more often.

    An episode is chosen by one of its steps, each equally likely. Its steps are sampled without
    replacement, unless it has fewer than `size`.
    """
    key_episode, key_steps = jax.random.split(key)
    row, first, length = _sample_starts(index, key_episode, number)
    return _gather(index, ring, row, first, subset(key_steps, length, size, longest))


def sample_episodes(
    index: EpisodeIndex, ring: Ring, key: Key, number: int, longest: int
) -> EpisodeSamples:
    """Sample `number` episodes with all of their steps, long ones more often.

    There are always `longest` steps; those beyond an episode's length do not belong to it.
    """
    row, first, _ = _sample_starts(index, key, number)
    offset = jnp.broadcast_to(jnp.arange(longest)[None], (number, longest))
    return _gather(index, ring, row, first, offset)


def _sample_starts(index: EpisodeIndex, key: Key, number: int) -> tuple[Array, Array, Array]:
    """Sample complete episodes, each by one of its steps: their rows, first steps and lengths."""
    row, chosen = replay_buffer.sample(key, *complete_range(index), (number,))
    first = chosen - replay_buffer.gather(index.age, row, chosen)
    return row, first, replay_buffer.gather(index.length, row, first)


def _gather(
    index: EpisodeIndex, ring: Ring, row: Array, first: Array, offset: Array
) -> EpisodeSamples:
    """Return the steps at `offset` [episodes, K] of the episodes that start at `first`."""
    rows = jnp.broadcast_to(row[:, None], offset.shape)
    steps = replay_buffer.gather(ring.steps, rows, first[:, None] + offset)
    length, episode_return = (
        replay_buffer.gather(x, row, first) for x in (index.length, index.episode_return)
    )
    return EpisodeSamples(steps, length, episode_return)


def subset(key: Key, length: Array, size: int, longest: int) -> Array:
    """Sample `size` of the numbers below each length [n] (at most `longest`): int32 [n, size].

    Without replacement where there are enough of them, else with.
    """
    key_order, key_repeat = jax.random.split(key)
    limit = jnp.maximum(length, 1)[:, None]
    repeated = jax.random.randint(key_repeat, (len(length), size), 0, limit)
    if size > longest:
        return repeated
    # The places of the largest random numbers are a sample without replacement.
    scores = jax.random.uniform(key_order, (len(length), longest))
    scores = jnp.where(jnp.arange(longest)[None] < limit, scores, -1.0)
    different = jax.lax.top_k(scores, size)[1].astype(repeated.dtype)
    return jnp.where(size <= limit, different, repeated)
