"""Thousands of copies of one environment: time limit, statistics, and resets from a pool.

Resetting every environment at every step would double the cost; caching one first state would
start every episode alike. So a pool of fresh states is drawn now and then, and an environment
whose episode ends takes one of them.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.envs import episode_stats, nan_capture
from jaxrl.envs.env_state import (
    PackedEnvState,
    Template,
    cut,
    describe,
    over,
    pack,
    physics,
    strong,
    truncation,
    typed_like,
    unpack,
    with_fresh_keys,
)
from jaxrl.envs.episode_stats import EpisodeStats
from jaxrl.envs.rows import as_mask, choose, cleaned, length_of, sane
from jaxrl.types import Array, EnvSpec, Key, Metrics, PyTree


class EnvState(struct.PyTreeNode):
    """The state of N environments."""

    world: PackedEnvState  # [N, ...]
    age: Array  # int32 [N], environment steps since the episode began
    statistics: EpisodeStats
    pending_reward: PyTree = ()  # sum of rewards not yet paid, [N, ...]; or ()
    broken: Any = ()  # NonFiniteCapture, where it is kept
    start: Any = ()  # PackedEnvState, where every episode starts in the same


class StepResult(NamedTuple):
    """What one step gave, a row for each agent: [rows, ...]."""

    reward: Array
    terminated: Array
    truncated: Array
    next_obs: PyTree


@dataclass(frozen=True)
class VectorEnv:
    """N copies of a Brax environment behind pure functions.

    An environment with several agents (`num_agents`) has an axis of agents in its observation,
    action and reward. Seen from outside it is rows, N · agents of them; neighbours play together.
    """

    env: Any
    num_envs: int
    episode_length: int
    action_repeat: int = 1
    pool_size: int = 64
    fresh_resets: bool = True  # or else return to the first state, each to its own
    random_first_age: bool = True
    episodic_reward: bool = False  # pay nothing until an episode ends, then the sum
    keep_broken: bool = False  # keep what led to numbers that cannot be learnt from
    trials: bool = False  # start in the environment's fixed starts, one in each copy
    known: Template | None = None  # from an earlier run: spares building the environment

    @functools.cached_property
    def _start(self) -> Any:
        """Shapes of one start state as Brax gives it."""
        with physics():
            return jax.eval_shape(self.env.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))

    @functools.cached_property
    def template(self) -> Template:
        """What is known of one environment; asking for it may build and trace it."""
        return self.known or describe(self.env, self._start)

    @property
    def whole_template(self) -> Template:
        """The same, with all of Brax's state kept."""
        return describe(self.env, self._start, keep_all=True)

    @property
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        template = self.template
        obs = template.world.obs
        if template.agents:
            obs = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), obs)
        return EnvSpec(obs, template.action, template.tokens)

    @property
    def longest_episode(self) -> int:
        """Actions in an episode that runs into its time limit."""
        return -(-self.episode_length // self.action_repeat)

    @property
    def rows(self) -> int:
        """Agents in all environments."""
        return self.num_envs * (self.template.agents or 1)

    def by_agent(self, tree: PyTree) -> PyTree:
        """[N, agents, ...] -> [rows, ...]; nothing to do for environments of one."""
        if not self.template.agents:
            return tree
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)

    def by_env(self, x: Array) -> Array:
        """[rows, ...] -> [N, agents, ...], or [N, ...] for environments of one."""
        agents = self.template.agents
        return x.reshape(-1, agents, *x.shape[1:]) if agents else x

    def observe(self, state: EnvState) -> PyTree:
        """Return what each agent sees, [rows, ...]; finite, even if a reset was not."""
        return self.by_agent(cleaned(state.world.obs))

    def abstract_pool(self) -> PackedEnvState:
        """Return the shapes of a pool, without tracing the physics once more."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.pool_size, *leaf.shape), leaf.dtype),
            self.template.world,
        )

    @property
    def first_curriculum(self) -> PyTree:
        """What start states are drawn by in the beginning; () where that never changes."""
        return jax.tree.map(jnp.asarray, self.template.curriculum)

    def fresh(self, key: Key, number: int, curriculum: PyTree = ()) -> PackedEnvState:
        """Draw `number` start states, by default as they are judged by.

        Brax environments are written for raw keys.
        """
        keys = jax.random.key_data(jax.random.split(key, number))
        last = jax.tree.map(jnp.asarray, self.template.last_curriculum)
        given = [tree for tree in (curriculum, last) if jax.tree.leaves(tree)][:1]
        with physics():
            starts = jax.vmap(lambda key: self.env.reset(key, *given))(keys)
            return self.world(strong(starts))

    def pool(self, key: Key, curriculum: PyTree = ()) -> PackedEnvState:
        """Draw the start states of the episodes to come."""
        return self.fresh(key, self.pool_size, curriculum)

    def fixed(self) -> PackedEnvState:
        """Return the environment's fixed starts."""
        with physics():
            return self.world(strong(jax.vmap(self.env.trial)(jnp.arange(self.num_envs))))

    def record(self, state: EnvState) -> PyTree:
        """Return what a trial is judged by, [N, ...]; () outside of trials."""
        if not self.trials:
            return ()
        with physics():
            return jax.vmap(self.env.record)(self.brax_state(state.world))

    def reset(
        self, key: Key, pool: PackedEnvState | None = None, *, stagger: bool | None = None
    ) -> EnvState:
        """Start all environments, in states from the pool if there is one.

        Staggered ages keep later resets from coming in waves.
        """
        stagger = self.random_first_age if stagger is None else stagger
        key_start, key_age = jax.random.split(key)
        if self.trials:
            world = self._with_own_noise(self.fixed(), key_start)
        elif pool is None:
            world = self.fresh(key_start, self.num_envs)
        else:
            row = jnp.arange(self.num_envs) % length_of(pool)
            world = jax.tree.map(lambda leaf: leaf[row], pool)
            world = self._with_own_noise(world, key_start)
        age = jnp.zeros(self.num_envs, jnp.int32)
        if stagger:
            turns = max(self.longest_episode, 1)
            age = jax.random.randint(key_age, (self.num_envs,), 0, turns)
            age = age * self.action_repeat
        agents = self.template.agents
        shape = (self.num_envs, agents) if agents else (self.num_envs,)
        pending_reward = jnp.zeros(shape, jnp.float32) if self.episodic_reward else ()
        noted = ()
        if self.keep_broken:
            noted = nan_capture.nothing(
                world, self._no_action(shape), jnp.zeros(shape, jnp.float32)
            )
        counted = episode_stats.begin(age == 0, world.metrics)
        start = () if self.fresh_resets else world
        return EnvState(world, age, counted, pending_reward, noted, start)

    def _no_action(self, shape: tuple[int, ...]) -> Array:
        size, discrete = self.template.action
        return jnp.zeros(shape if discrete else (*shape, size), "int32" if discrete else "float32")

    def brax_state(self, world: PackedEnvState) -> Any:
        """Return a state as Brax knows it, for its own functions and for looking inside."""
        return unpack(world, self._start, self.template.kept)

    def world(self, state: Any) -> PackedEnvState:
        """Return the part of Brax's state that is carried from step to step."""
        return pack(state, self.template.kept)

    def advance(self, state: EnvState, action: Array) -> tuple[EnvState, StepResult]:
        """Step all environments, without resetting those whose episode ends."""
        state, outcome = self._advance(state, self.by_env(action))
        return state, self._for_agents(outcome)

    def step(
        self, state: EnvState, action: Array, pool: PackedEnvState, key: Key
    ) -> tuple[EnvState, StepResult]:
        """Advance, then start anew where an episode ended."""
        state, outcome = self._advance(state, self.by_env(action))
        ended = outcome.terminated | outcome.truncated
        return state.replace(
            world=choose(ended, self._restart(state, pool, key), state.world),
            age=jnp.where(ended, 0, state.age),
            statistics=episode_stats.restart(state.statistics, ended),
        ), self._for_agents(outcome)

    def _restart(self, state: EnvState, pool: PackedEnvState, key: Key) -> PackedEnvState:
        """Return where each environment's next episode would start."""
        if not self.fresh_resets:
            return self._with_own_noise(state.start, key)
        # One draw, where `randint` makes three to be exactly even: here it is off by a millionth.
        index = jax.random.bits(key, (self.num_envs,), jnp.uint32) % length_of(pool)
        return self._with_own_noise(jax.tree.map(lambda leaf: leaf[index], pool), key)

    def _with_own_noise(self, world: PackedEnvState, key: Key) -> PackedEnvState:
        """Give each environment random keys of its own, if its state carries any."""
        keys = self.template.keys
        return with_fresh_keys(world, keys, jax.random.fold_in(key, 1)) if keys else world

    def take_statistics(self, state: EnvState) -> tuple[EnvState, Metrics]:
        """Return the means over finished episodes and forget them."""
        kept, metrics = episode_stats.take(state.statistics)
        return state.replace(statistics=kept), metrics

    def _advance(self, state: EnvState, action: Array) -> tuple[EnvState, StepResult]:
        """Step; endings are [N], reward and observation have the agents' axis if there is one."""
        before = self.brax_state(state.world)
        with physics():
            world, taken = jax.vmap(self._repeat)(before, action)
        world = typed_like(world, before)
        # Only a reset leaves a non-finite observation behind: its first step reveals it.
        healthy = sane(before.obs, world.obs, world.reward, world.done, truncation(world))
        noted = state.broken
        if self.keep_broken:
            noted = nan_capture.note(noted, healthy, state.age, state.world, action, world)
        obs = choose(healthy, world.obs, cleaned(before.obs))
        reward = jnp.where(as_mask(healthy, world.reward), world.reward, 0.0).astype(jnp.float32)
        world = world.replace(obs=obs, reward=reward.astype(world.reward.dtype))
        age = state.age + taken
        cut_by_env = cut(world)
        # A non-finite environment terminates here and is reset; nobody learns from NaN.
        terminated = ((world.done > 0) & ~cut_by_env) | ~healthy
        truncated = ((age >= self.episode_length) | cut_by_env) & ~terminated
        mean = jnp.mean(reward.reshape(self.num_envs, -1), axis=1)
        counted = episode_stats.count(
            state.statistics, world.metrics, mean, taken, terminated | truncated, healthy
        )
        pending_reward = state.pending_reward
        if self.episodic_reward:
            ended = as_mask(terminated | truncated, reward)
            due = pending_reward + reward
            reward, pending_reward = jnp.where(ended, due, 0.0), jnp.where(ended, 0.0, due)
        state = EnvState(self.world(world), age, counted, pending_reward, noted, state.start)
        return state, StepResult(reward, terminated, truncated, obs)

    def _for_agents(self, outcome: StepResult) -> StepResult:
        """Give every agent a row: what it was paid and sees, and its environment's endings."""
        agents = self.template.agents
        if not agents:
            return outcome
        return StepResult(
            reward=self.by_agent(outcome.reward),
            terminated=jnp.repeat(outcome.terminated, agents),
            truncated=jnp.repeat(outcome.truncated, agents),
            next_obs=self.by_agent(outcome.next_obs),
        )

    def _repeat(self, world: Any, action: Array) -> tuple[Any, Array]:
        """Apply one action `action_repeat` times, up to an ending; return the steps taken too."""
        if self.action_repeat == 1:
            return self.env.step(world, action), jnp.ones((), jnp.int32)

        def once(carry, _):
            world, reward, metrics, taken, ended = carry
            after = typed_like(self.env.step(world, action), world)
            reward = reward + jnp.where(ended, 0.0, after.reward)
            metrics = {k: metrics[k] + jnp.where(ended, 0.0, v) for k, v in after.metrics.items()}
            world = jax.tree.map(lambda old, new: jnp.where(ended, old, new), world, after)
            taken = taken + ~ended
            return (world, reward, metrics, taken, ended | over(world)), None

        nothing = {k: jnp.zeros((), jnp.float32) for k in world.metrics}
        zero = jnp.zeros(world.reward.shape, jnp.float32)
        start = (world, zero, nothing, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
        end, _ = jax.lax.scan(once, start, length=self.action_repeat)
        world, reward, metrics, taken, _ = end
        if "success" in metrics:
            metrics["success"] = world.metrics["success"]
        return world.replace(reward=reward, metrics=metrics), taken
