"""Whole episodes in a ring of steps: which are complete, where they begin, what they returned.

A finished episode is noted under the place of its first step, so that any of its steps, which
knows its own age, finds it. An episode counts from its end until the first of its steps is
overwritten; then it is gone whole. Nothing here looks at more than one place per row and step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.learning import replay_buffer
from jaxrl.learning.replay_buffer import Ring
from jaxrl.types import Array, Key, PyTree


class EpisodeIndex(struct.PyTreeNode):
    """What is known of the episodes in a ring, [rows, ...] like it."""

    age: Array  # int32 [rows, length], of each step within its episode
    length: Array  # int32 [rows, length], of the episode that begins here, once it is finished
    returned: Array  # float32 [rows, length], the sum of its rewards
    age_now: Array  # int32 [rows], of the episode in progress
    return_now: Array  # float32 [rows]
    first: Array  # int32 [rows], number of the first step of the oldest complete episode
    end: Array  # int32 [rows], number after the last step of the newest complete episode
    following: Array  # int32 [rows], what `first` becomes when the next steps are written


class EpisodeSamples(NamedTuple):
    """Steps of episodes, [episodes, K, ...], and what they belong to, [episodes]."""

    steps: PyTree
    length: Array
    returned: Array


def init(rows: int, length: int) -> EpisodeIndex:
    """Return the book of an empty ring."""
    per_row, per_step = jnp.zeros(rows, jnp.int32), jnp.zeros((rows, length), jnp.int32)
    none, nothing = per_step.astype(jnp.float32), per_row.astype(jnp.float32)
    return EpisodeIndex(per_step, per_step, none, per_row, nothing, per_row, per_row, per_row)


def insert(book: EpisodeIndex, written: Array, reward: Array, ended: Array) -> EpisodeIndex:
    """Note steps [T, rows] that are being written to a ring after `written` [rows] others."""
    size, count = book.age.shape[1], reward.shape[0]
    rows = jnp.arange(reward.shape[1])
    oldest = jnp.maximum(written + count - size, 0)  # number of the first that remains
    book = book.replace(first=book.following)

    def step(carry: tuple[EpisodeIndex, Array], inputs: tuple[Array, Array]):
        book, number = carry
        reward, ended = inputs
        returned = book.return_now + reward
        first = number - book.age_now
        # An episode that outgrew the ring lost its beginning before it ended: it never counts.
        whole = ended & (first >= oldest)
        place = jnp.where(whole, first % size, size)  # beyond the end nothing is written
        book = book.replace(
            age=book.age.at[rows, number % size].set(book.age_now),
            length=book.length.at[rows, place].set(book.age_now + 1, mode="drop"),
            returned=book.returned.at[rows, place].set(returned, mode="drop"),
            age_now=jnp.where(ended, 0, book.age_now + 1),
            return_now=jnp.where(ended, 0.0, returned),
            first=jnp.where(ended & ~whole, number + 1, book.first),
            end=jnp.where(ended, number + 1, book.end),
        )
        return (book, number + 1), None

    (book, _), _ = jax.lax.scan(step, (book, written), (reward, ended))
    # Looked up now, after writing: reading what is about to be written over makes XLA copy it.
    coming = jnp.maximum(written + 2 * count - size, 0)
    return book.replace(following=_first_after(book, coming))


def _first_after(book: EpisodeIndex, oldest: Array) -> Array:
    """Return where complete episodes begin once the steps before `oldest` [rows] are lost."""
    size, rows = book.age.shape[1], jnp.arange(oldest.shape[0])
    age = book.age[rows, oldest % size]
    length = book.length[rows, (oldest - age) % size]
    following = jnp.where(age == 0, oldest, oldest - age + length)
    # Where the episode at the edge is still going on, nothing complete follows it.
    following = jnp.where(oldest < book.end, following, jnp.maximum(book.end, oldest))
    return jnp.where(oldest > book.first, following, book.first)


def beheaded(book: EpisodeIndex, rows: Array | bool = True) -> EpisodeIndex:
    """Return the book of an empty ring, some of whose rows are amid episodes that began elsewhere.

    Args:
      rows: bool [rows], which of them.
    """
    # As old as the ring: when it ends it has no beginning here, and so never counts.
    return book.replace(age_now=jnp.where(rows, book.age.shape[-1], book.age_now))


def restarted(book: EpisodeIndex, ring: Ring, count: int) -> tuple[EpisodeIndex, Ring]:
    """Return book and ring for rows whose episodes in progress will not be continued.

    Complete episodes lie in one stretch, which must stay one: steps of an episode without an end
    change places with it, and are now the first to be overwritten by the next `count` steps.
    """
    size, written = book.age.shape[1], ring.written
    oldest = jnp.maximum(written - size, 0)
    kept = written - oldest
    moved = jnp.minimum(written - book.end, kept)  # by so many places, all that is complete
    nth = (jnp.arange(size)[None] - oldest[:, None]) % size  # of what is kept, at each place
    source = oldest[:, None] + (nth - moved[:, None]) % jnp.maximum(kept, 1)[:, None]
    order = jnp.where(nth < kept[:, None], source, jnp.arange(size)[None]) % size
    by_step = replay_buffer.reorder((book.age, book.length, book.returned, ring.steps), order)
    book = book.replace(
        age=by_step[0],
        length=by_step[1],
        returned=by_step[2],
        age_now=jnp.zeros_like(book.age_now),
        return_now=jnp.zeros_like(book.return_now),
        first=book.first + moved,
        end=written,
    )
    coming = jnp.maximum(written + count - size, 0)
    return book.replace(following=_first_after(book, coming)), Ring(by_step[3], written)


def complete(book: EpisodeIndex) -> tuple[Array, Array]:
    """Return the numbers [first, end) of the steps of complete episodes, per row."""
    return book.first, jnp.maximum(book.end, book.first)


def draw_pieces(
    book: EpisodeIndex, ring: Ring, key: Key, number: int, size: int, longest: int
) -> EpisodeSamples:
    """Draw `size` random steps from each of `number` episodes, long ones more often.

    An episode is chosen by one of its steps, each equally likely. Its steps are drawn without
    replacement, unless it has fewer than `size`.
    """
    key_episode, key_steps = jax.random.split(key)
    row, first, length = _choose(book, key_episode, number)
    return _pieces(book, ring, row, first, subset(key_steps, length, size, longest))


def draw_whole(
    book: EpisodeIndex, ring: Ring, key: Key, number: int, longest: int
) -> EpisodeSamples:
    """Draw `number` episodes with all of their steps, long ones more often.

    There are always `longest` steps; those beyond an episode's length are not of it.
    """
    row, first, _ = _choose(book, key, number)
    offset = jnp.broadcast_to(jnp.arange(longest)[None], (number, longest))
    return _pieces(book, ring, row, first, offset)


def _choose(book: EpisodeIndex, key: Key, number: int) -> tuple[Array, Array, Array]:
    """Choose complete episodes, each by one of its steps: their rows, first steps and lengths."""
    row, chosen = replay_buffer.draw(key, *complete(book), (number,))
    first = chosen - replay_buffer.take(book.age, row, chosen)
    return row, first, replay_buffer.take(book.length, row, first)


def _pieces(
    book: EpisodeIndex, ring: Ring, row: Array, first: Array, offset: Array
) -> EpisodeSamples:
    """Return the steps at `offset` [episodes, K] of episodes that begin at `first`."""
    spread = jnp.broadcast_to(row[:, None], offset.shape)
    steps = replay_buffer.take(ring.steps, spread, first[:, None] + offset)
    length, returned = (replay_buffer.take(x, row, first) for x in (book.length, book.returned))
    return EpisodeSamples(steps, length, returned)


def subset(key: Key, length: Array, size: int, longest: int) -> Array:
    """Draw `size` of the numbers below each length [n] (at most `longest`): int32 [n, size].

    Without replacement where there are enough of them, else with.
    """
    key_order, key_repeat = jax.random.split(key)
    limit = jnp.maximum(length, 1)[:, None]
    repeated = jax.random.randint(key_repeat, (len(length), size), 0, limit)
    if size > longest:
        return repeated
    # The largest of random numbers: a draw of different ones.
    scores = jax.random.uniform(key_order, (len(length), longest))
    scores = jnp.where(jnp.arange(longest)[None] < limit, scores, -1.0)
    different = jax.lax.top_k(scores, size)[1].astype(repeated.dtype)
    return jnp.where(size <= limit, different, repeated)
