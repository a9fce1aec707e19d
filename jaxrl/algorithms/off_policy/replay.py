"""Replay: a ring of steps per environment, an index of episodes where needed, samples of both.

Samples are taken from each of `num_shards` equal shards of rows, and every batch takes the same
number from each: with one shard per device no step is moved to another device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.config import OffPolicyConfig, RRDConfig
from jaxrl.learning import episode_index, replay_buffer, td
from jaxrl.learning.episode_index import EpisodeIndex, EpisodeSamples
from jaxrl.learning.replay_buffer import Ring, Transition
from jaxrl.types import Array, EnvSpec, Key, PyTree, Rollout


class ReplayState(struct.PyTreeNode):
    """Steps of all rows, and the index of their episodes."""

    ring: Ring
    index: Any  # EpisodeIndex, or () if the configuration needs none


@dataclass(frozen=True)
class ReplayBuffer:
    """How steps are stored and sampled; every method is a pure function."""

    config: OffPolicyConfig
    spec: EnvSpec
    rows: int
    longest: int  # steps of the longest possible episode
    num_shards: int = 1
    rrd: RRDConfig = RRDConfig()  # sizes of the samples of episodes

    @property
    def length(self) -> int:
        """Steps stored of each row: whole rollouts."""
        chunk = self.config.rollout_length
        return max(self.config.buffer_size // self.rows // chunk, 1) * chunk

    def empty(self) -> ReplayState:
        """Return a replay without steps."""
        spec = self.spec
        discrete = spec.action.discrete
        action = jnp.zeros((), jnp.int32) if discrete else jnp.zeros(spec.action.size, jnp.float32)
        obs = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, self._stored(s.dtype)), spec.obs)
        step = Transition(obs, action, jnp.zeros((), jnp.float32), jnp.zeros((), bool), obs)
        if self.config.n_step > 1:
            step = step._replace(truncated=jnp.zeros((), bool))
        index = episode_index.init(self.rows, self.length) if self.config.keeps_episodes else ()
        return ReplayState(replay_buffer.init(step, self.rows, self.length), index)

    def _stored(self, dtype: Any) -> Any:
        """Return the type in which observations of a type are stored."""
        return self.config.replay_dtype if dtype == jnp.float32 else dtype

    def _to_stored(self, obs: PyTree) -> PyTree:
        """Return observations as they are stored; what float16 cannot hold is clipped."""

        def convert(x: Array) -> Array:
            stored = jnp.dtype(self._stored(x.dtype))
            if stored == x.dtype:
                return x
            most = jnp.finfo(stored).max
            return jnp.clip(x, -most, most).astype(stored)

        return jax.tree.map(convert, obs)

    def _to_read(self, steps: Transition) -> Transition:
        """Return stored transitions with observations of the environment's types."""

        def convert(obs: PyTree) -> PyTree:
            return jax.tree.map(lambda x, s: x.astype(s.dtype), obs, self.spec.obs)

        return steps._replace(obs=convert(steps.obs), next_obs=convert(steps.next_obs))

    def add(self, replay: ReplayState, experience: Rollout) -> ReplayState:
        """Write a rollout over the oldest steps."""
        index = replay.index
        if self.config.keeps_episodes:
            ended = experience.terminated | experience.truncated
            index = episode_index.add(index, replay.ring.written, experience.reward, ended)
        steps = Transition(
            self._to_stored(experience.obs),
            experience.action,
            experience.reward,
            experience.terminated,
            self._to_stored(experience.next_obs),
            experience.truncated if self.config.n_step > 1 else (),
        )
        return ReplayState(replay_buffer.add(replay.ring, steps), index)

    def _learnable_range(self, replay: ReplayState) -> tuple[Array, Array]:
        """Return the numbers [first, end) of the steps that count for the warm-up, per row."""
        if self.config.keeps_episodes:
            return episode_index.complete_range(replay.index)
        first, end = replay_buffer.stored_range(replay.ring)
        # The newest steps have no successors yet.
        return first, jnp.maximum(end - (self.config.n_step - 1), first)

    def size(self, replay: ReplayState) -> Array:
        """Return the number of steps to learn from: shards × those of the smallest shard."""
        first, end = self._learnable_range(replay)
        return self.num_shards * jnp.min(
            jnp.sum((end - first).reshape(self.num_shards, -1), axis=1)
        )

    def sample(
        self, replay: ReplayState, key: Key, batches: int, gamma: Array | float = 1.0
    ) -> Transition:
        """Sample transitions for several gradient steps, [batches, batch_size, ...].

        For IRCR the reward of each is the return of its episode. With n-step returns it is the
        discounted sum of rewards, and the successor is the state after the last of them.
        """
        size, is_ircr = self.config.batch_size // self.num_shards, self.config.reward == "ircr"

        def one(replay: ReplayState, key: Key) -> Transition:
            # A learnt reward exists for steps of unfinished episodes too: critics use them all.
            learnable = is_ircr or self.config.n_step > 1
            bounds = (
                self._learnable_range(replay)
                if learnable
                else replay_buffer.stored_range(replay.ring)
            )
            row, number = replay_buffer.sample(key, *bounds, (batches, size))
            if self.config.n_step > 1:
                return self._n_step(replay.ring, row, number, gamma)
            steps = replay_buffer.gather(replay.ring.steps, row, number)
            if not is_ircr:
                return steps
            first = number - replay_buffer.gather(replay.index.age, row, number)
            reward = replay_buffer.gather(replay.index.episode_return, row, first)
            return steps._replace(reward=reward)

        return self._to_read(self._by_shard(one, replay, key))

    def _n_step(self, ring: Ring, row: Array, number: Array, gamma: Array | float) -> Transition:
        """Return transitions over up to n steps of the same episode."""
        steps, n = ring.steps, self.config.n_step
        ahead = number[..., None] + jnp.arange(n).reshape((1,) * number.ndim + (n,))
        ends = (steps.reward, steps.terminated | steps.truncated)
        reward, ended = replay_buffer.gather(ends, row[..., None], ahead)
        reward, count = td.n_step(reward, ended, gamma=gamma)
        obs, action = replay_buffer.gather((steps.obs, steps.action), row, number)
        last = number + count - 1
        terminated, next_obs = replay_buffer.gather((steps.terminated, steps.next_obs), row, last)
        return Transition(obs, action, reward, terminated, next_obs, steps=count)

    def sample_steps(self, replay: ReplayState, key: Key, batches: int) -> EpisodeSamples:
        """Sample steps of episodes, [batches, episodes, sample_size, ...]."""
        number, size = self.rrd.episodes // self.num_shards, self.rrd.sample_size

        def one(replay: ReplayState, key: Key) -> EpisodeSamples:
            samples = episode_index.sample_steps(
                replay.index, replay.ring, key, batches * number, size, self.longest
            )
            return jax.tree.map(lambda x: x.reshape(batches, number, *x.shape[1:]), samples)

        samples = self._by_shard(one, replay, key)
        return samples._replace(steps=self._to_read(samples.steps))

    def sample_episodes(self, replay: ReplayState, key: Key, batches: int) -> EpisodeSamples:
        """Sample whole episodes, [episodes, longest, ...], with as many steps as `sample_steps`."""
        number = max(batches * self.rrd.batch_size // self.longest // self.num_shards, 1)

        def one(replay: ReplayState, key: Key) -> EpisodeSamples:
            samples = episode_index.sample_episodes(
                replay.index, replay.ring, key, number, self.longest
            )
            return jax.tree.map(lambda x: x[None], samples)

        samples = jax.tree.map(lambda x: x[0], self._by_shard(one, replay, key))
        return samples._replace(steps=self._to_read(samples.steps))

    def _by_shard(
        self, one: Callable[[ReplayState, Key], PyTree], replay: ReplayState, key: Key
    ) -> PyTree:
        """Sample from each shard of rows, [batches, size, ...] each, and join the samples."""
        if self.num_shards == 1:
            return one(replay, key)
        shards = jax.tree.map(lambda x: x.reshape(self.num_shards, -1, *x.shape[1:]), replay)
        samples = jax.vmap(one)(shards, jax.random.split(key, self.num_shards))

        def join(x: Array) -> Array:
            x = jnp.moveaxis(x, 0, 1)
            return x.reshape(x.shape[0], -1, *x.shape[3:])

        return jax.tree.map(join, samples)


def exclude_current(replay: PyTree) -> PyTree:
    """Return an empty replay for rows amid episodes that began before it.

    Other trees than a ReplayState with episodes are returned as they are.
    """
    if not _has_episodes(replay):
        return replay
    return replay.replace(index=episode_index.exclude_current(replay.index))


def restart_episodes(replay: PyTree, rollout_length: int) -> PyTree:
    """Return a replay for rows whose episodes in progress will not be continued.

    Other trees than a ReplayState are returned as they are. The ring is donated: there may not be
    memory for two.
    """
    if not isinstance(replay, ReplayState):
        return replay
    if not isinstance(replay.ring.steps.truncated, tuple):
        places = jax.tree.map(lambda leaf: leaf.sharding, replay.ring)
        end = jax.jit(_end_episodes, donate_argnums=0, out_shardings=places)
        return replay.replace(ring=end(replay.ring))
    if not _has_episodes(replay):
        return replay
    places = jax.tree.map(lambda leaf: leaf.sharding, (replay.index, replay.ring))
    restart = jax.jit(
        episode_index.restart_episodes,
        static_argnums=2,
        donate_argnums=1,
        out_shardings=places,  # the compiler would replicate what does not depend on rows
    )
    index, ring = restart(replay.index, replay.ring, rollout_length)
    return ReplayState(ring, index)


def _end_episodes(ring: Ring) -> Ring:
    """Return a ring whose newest steps are the last of their episodes."""
    rows, last = jnp.arange(len(ring.written)), (ring.written - 1) % replay_buffer.length(ring)
    truncated = ring.steps.truncated.at[rows, last].set(ring.written > 0)
    return ring.replace(steps=ring.steps._replace(truncated=truncated))


def _has_episodes(replay: PyTree) -> bool:
    return isinstance(replay, ReplayState) and bool(jax.tree.leaves(replay.index))


def return_range(index: EpisodeIndex) -> tuple[Array, Array]:
    """Return the lowest and highest return of the complete episodes."""
    size = index.age.shape[1]
    first, end = episode_index.complete_range(index)
    places = jnp.arange(size)[None]
    # The number of the newest step at each place: it is a complete episode's if it lies between.
    number = first[:, None] + (places - first[:, None]) % size
    is_start = (number < end[:, None]) & (index.age == 0)
    low = jnp.min(jnp.where(is_start, index.episode_return, jnp.inf))
    high = jnp.max(jnp.where(is_start, index.episode_return, -jnp.inf))
    return low, high
