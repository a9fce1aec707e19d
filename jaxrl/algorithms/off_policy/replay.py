"""Replay: a ring of steps per environment, whole episodes where needed, and samples of both.

Samples are drawn from each of `num_shards` equal blocks of rows, and every batch takes the same
number from each: with one block per device no step travels to another device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.config import OffPolicyConfig
from jaxrl.learning import episode_index, replay_buffer
from jaxrl.learning.episode_index import EpisodeIndex, EpisodeSamples
from jaxrl.learning.replay_buffer import Ring, Transition
from jaxrl.types import Array, EnvSpec, Key, PyTree, Rollout


class ReplayState(struct.PyTreeNode):
    """Steps of all rows, and what is known of their episodes: () if nobody asks."""

    ring: Ring
    book: Any  # Book or ()


@dataclass(frozen=True)
class ReplayBuffer:
    """How steps are kept and drawn; every method is a pure function."""

    config: OffPolicyConfig
    spec: EnvSpec
    rows: int
    longest: int  # steps of the longest possible episode
    num_shards: int

    @property
    def length(self) -> int:
        """Steps kept of each row: whole rollouts."""
        chunk = self.config.rollout_length
        return max(self.config.buffer_size // self.rows // chunk, 1) * chunk

    def empty(self) -> ReplayState:
        """Return a store without steps."""
        spec = self.spec
        discrete = spec.action.discrete
        action = jnp.zeros((), jnp.int32) if discrete else jnp.zeros(spec.action.size, jnp.float32)
        step = Transition(
            spec.obs, action, jnp.zeros((), jnp.float32), jnp.zeros((), bool), spec.obs
        )
        book = episode_index.init(self.rows, self.length) if self.config.keeps_episodes else ()
        return ReplayState(replay_buffer.init(step, self.rows, self.length), book)

    def add(self, stored: ReplayState, experience: Rollout) -> ReplayState:
        """Write a rollout over the oldest steps."""
        book = stored.book
        if self.config.keeps_episodes:
            ended = experience.terminated | experience.truncated
            book = episode_index.insert(book, stored.ring.written, experience.reward, ended)
        steps = Transition(
            experience.obs,
            experience.action,
            experience.reward,
            experience.terminated,
            experience.next_obs,
        )
        return ReplayState(replay_buffer.insert(stored.ring, steps), book)

    def _known(self, stored: ReplayState) -> tuple[Array, Array]:
        """Return the numbers [first, end) of the steps whose rewards can be told, per row."""
        if self.config.keeps_episodes:
            return episode_index.complete(stored.book)
        return replay_buffer.kept(stored.ring)

    def size(self, stored: ReplayState) -> Array:
        """Return how many steps there are to learn from, as if all blocks were like the poorest."""
        first, end = self._known(stored)
        return self.num_shards * jnp.min(
            jnp.sum((end - first).reshape(self.num_shards, -1), axis=1)
        )

    def draw(self, stored: ReplayState, key: Key, batches: int) -> Transition:
        """Draw transitions for several gradient steps, [batches, batch_size, ...]."""
        size, ranked = self.config.batch_size // self.num_shards, self.config.reward == "ircr"

        def one(stored: ReplayState, key: Key) -> Transition:
            # A learnt reward pays steps of unfinished episodes too: critics need not lag behind.
            bounds = self._known(stored) if ranked else replay_buffer.kept(stored.ring)
            row, number = replay_buffer.draw(key, *bounds, (batches, size))
            steps = replay_buffer.take(stored.ring.steps, row, number)
            if not ranked:
                return steps
            first = number - replay_buffer.take(stored.book.age, row, number)
            return steps._replace(reward=replay_buffer.take(stored.book.returned, row, first))

        return self._in_blocks(one, stored, key)

    def draw_pieces(self, stored: ReplayState, key: Key, batches: int) -> EpisodeSamples:
        """Draw pieces of episodes, [batches, episodes, rrd_sample_size, ...]."""
        c = self.config
        number = c.rrd_batch_size // c.rrd_sample_size // self.num_shards

        def one(stored: ReplayState, key: Key) -> EpisodeSamples:
            pieces = episode_index.draw_pieces(
                stored.book, stored.ring, key, batches * number, c.rrd_sample_size, self.longest
            )
            return jax.tree.map(lambda x: x.reshape(batches, number, *x.shape[1:]), pieces)

        return self._in_blocks(one, stored, key)

    def draw_whole(self, stored: ReplayState, key: Key, batches: int) -> EpisodeSamples:
        """Draw as many whole episodes, [episodes, longest, ...], as have the steps of pieces."""
        c = self.config
        number = max(batches * c.rrd_batch_size // self.longest // self.num_shards, 1)

        def one(stored: ReplayState, key: Key) -> EpisodeSamples:
            whole = episode_index.draw_whole(stored.book, stored.ring, key, number, self.longest)
            return jax.tree.map(lambda x: x[None], whole)

        return jax.tree.map(lambda x: x[0], self._in_blocks(one, stored, key))

    def _in_blocks(
        self, one: Callable[[ReplayState, Key], PyTree], stored: ReplayState, key: Key
    ) -> PyTree:
        """Draw from each block of rows, [batches, size, ...] each, and join them."""
        if self.num_shards == 1:
            return one(stored, key)
        parts = jax.tree.map(lambda x: x.reshape(self.num_shards, -1, *x.shape[1:]), stored)
        drawn = jax.vmap(one)(parts, jax.random.split(key, self.num_shards))

        def join(x: Array) -> Array:
            x = jnp.moveaxis(x, 0, 1)
            return x.reshape(x.shape[0], -1, *x.shape[3:])

        return jax.tree.map(join, drawn)


def beheaded(stored: PyTree) -> PyTree:
    """Return an empty store, if it is one, for rows amid episodes that began before it."""
    if not _keeps_episodes(stored):
        return stored
    return stored.replace(book=episode_index.beheaded(stored.book))


def restarted(stored: PyTree, rollout_length: int) -> PyTree:
    """Return a store, if it is one, for rows whose episodes in progress will not be continued.

    The steps that are given are used up: there may not be room for two rings.
    """
    if not _keeps_episodes(stored):
        return stored
    restart = jax.jit(episode_index.restarted, static_argnums=2, donate_argnums=1)
    book, ring = restart(stored.book, stored.ring, rollout_length)
    return ReplayState(ring, book)


def _keeps_episodes(stored: PyTree) -> bool:
    return isinstance(stored, ReplayState) and bool(jax.tree.leaves(stored.book))


def returns_seen(book: EpisodeIndex) -> tuple[Array, Array]:
    """Return the lowest and highest return of the complete episodes that are kept."""
    size = book.age.shape[1]
    first, end = episode_index.complete(book)
    places = jnp.arange(size)[None]
    # The number of the newest step at each place: it is a complete episode's if it lies between.
    number = first[:, None] + (places - first[:, None]) % size
    is_start = (number < end[:, None]) & (book.age == 0)
    low = jnp.min(jnp.where(is_start, book.returned, jnp.inf))
    high = jnp.max(jnp.where(is_start, book.returned, -jnp.inf))
    return low, high
