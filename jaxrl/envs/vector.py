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

from jaxrl.envs.world import (
    Template,
    World,
    cut,
    describe,
    pack,
    physics,
    strong,
    typed_like,
    unpack,
)
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree


class EnvState(struct.PyTreeNode):
    """The state of N environments."""

    world: World  # [N, ...]
    age: Array  # int32 [N], environment steps since the episode began
    whole: Array  # bool [N], was this episode seen from its first step?
    running: dict[str, Array]  # sums over the current episode, [N] each
    finished: dict[str, Array]  # sums over the episodes that ended since last asked, [N] each


class Outcome(NamedTuple):
    """What one step gave, [N, ...]."""

    reward: Array
    terminated: Array
    truncated: Array
    next_obs: PyTree


def _rows(mask: Array, leaf: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (leaf.ndim - 1))


def _length(tree: PyTree) -> int:
    return jax.tree.leaves(tree)[0].shape[0]


def choose(mask: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Pick per environment between two trees of [N, ...] arrays."""
    return jax.tree.map(lambda a, b: jnp.where(_rows(mask, a), a, b), yes, no)


def _sane(obs: PyTree, reward: Array) -> Array:
    """Return [N]: can the learner bear what it would see? Physics passes 1e10 on its way to NaN."""
    rows = [jnp.isfinite(reward)]
    for leaf in jax.tree.leaves(obs):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            rows.append(jnp.all((jnp.abs(leaf) < 1e10).reshape(leaf.shape[0], -1), axis=1))
    return jnp.all(jnp.stack(rows), axis=0)


@dataclass(frozen=True)
class VectorEnv:
    """N copies of a Brax environment behind pure functions."""

    env: Any
    num_envs: int
    episode_length: int
    action_repeat: int = 1
    pool_size: int = 64
    random_first_age: bool = True
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
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        return EnvSpec(self.template.world.obs, self.template.action)

    def abstract_pool(self) -> World:
        """Return the shapes of a pool, without tracing the physics once more."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.pool_size, *leaf.shape), leaf.dtype),
            self.template.world,
        )

    def fresh(self, key: Key, number: int) -> World:
        """Draw `number` start states; Brax environments are written for raw keys."""
        keys = jax.random.key_data(jax.random.split(key, number))
        with physics():
            return self.world(strong(jax.vmap(self.env.reset)(keys)))

    def pool(self, key: Key) -> World:
        """Draw the start states of the episodes to come."""
        return self.fresh(key, self.pool_size)

    def reset(
        self, key: Key, pool: World | None = None, *, stagger: bool | None = None
    ) -> EnvState:
        """Start all environments, in states from the pool if there is one.

        Staggered ages keep later resets from coming in waves.
        """
        stagger = self.random_first_age if stagger is None else stagger
        key_start, key_age = jax.random.split(key)
        if pool is None:
            world = self.fresh(key_start, self.num_envs)
        else:
            row = jnp.arange(self.num_envs) % _length(pool)
            world = jax.tree.map(lambda leaf: leaf[row], pool)
        age = jnp.zeros(self.num_envs, jnp.int32)
        if stagger:
            turns = -(-self.episode_length // self.action_repeat)
            age = jax.random.randint(key_age, (self.num_envs,), 0, max(turns, 1))
            age = age * self.action_repeat
        names = ["return", "length", *world.metrics]
        return EnvState(
            world=world,
            age=age,
            whole=age == 0,
            running=self._zeros(names),
            finished=self._zeros([*names, "count", "diverged"]),
        )

    def brax_state(self, world: World) -> Any:
        """Return a state as Brax knows it, for its own functions and for looking inside."""
        return unpack(world, self._start, self.template.kept)

    def world(self, state: Any) -> World:
        """Return the part of Brax's state that is carried from step to step."""
        return pack(state, self.template.kept)

    def advance(self, state: EnvState, action: Array) -> tuple[EnvState, Outcome]:
        """Step all environments, without resetting those whose episode ends."""
        before = self.brax_state(state.world)
        with physics():
            world, taken = jax.vmap(self._repeat)(before, action)
        world = typed_like(world, before)
        healthy = _sane(world.obs, world.reward)
        obs = choose(healthy, world.obs, before.obs)
        reward = jnp.where(healthy, world.reward, 0.0).astype(jnp.float32)
        world = world.replace(obs=obs, reward=reward.astype(world.reward.dtype))
        age = state.age + taken
        cut_by_env = cut(world)
        # An environment that left the numbers ends here and starts anew; nobody learns from NaN.
        terminated = ((world.done > 0) & ~cut_by_env) | ~healthy
        truncated = ((age >= self.episode_length) | cut_by_env) & ~terminated
        state = state.replace(world=self.world(world), age=age)
        state = self._count(state, reward, taken, terminated | truncated, healthy)
        return state, Outcome(reward, terminated, truncated, obs)

    def step(
        self, state: EnvState, action: Array, pool: World, key: Key
    ) -> tuple[EnvState, Outcome]:
        """Advance, then give every ended episode a start from the pool."""
        state, outcome = self.advance(state, action)
        ended = outcome.terminated | outcome.truncated
        index = jax.random.randint(key, (self.num_envs,), 0, _length(pool))
        start = jax.tree.map(lambda leaf: leaf[index], pool)
        return state.replace(
            world=choose(ended, start, state.world),
            age=jnp.where(ended, 0, state.age),
            whole=state.whole | ended,
            running={k: jnp.where(ended, 0.0, v) for k, v in state.running.items()},
        ), outcome

    def take_statistics(self, state: EnvState) -> tuple[EnvState, Metrics]:
        """Return the means over finished episodes and forget them."""
        total = {name: jnp.sum(value) for name, value in state.finished.items()}
        count = total.pop("count")
        diverged = Mean(total.pop("diverged"), jnp.ones((), jnp.float32))
        metrics = {"rollout/diverged": diverged}
        names = {"return": "ep_rew_mean", "length": "ep_len_mean", "success": "success_rate"}
        for name, value in total.items():
            metrics["rollout/" + names.get(name, f"ep_{name}")] = Mean(value, count)
        cleared = {name: jnp.zeros_like(value) for name, value in state.finished.items()}
        return state.replace(finished=cleared), metrics

    def _zeros(self, names: list[str]) -> dict[str, Array]:
        return {name: jnp.zeros(self.num_envs, jnp.float32) for name in names}

    def _repeat(self, world: Any, action: Array) -> tuple[Any, Array]:
        """Apply one action `action_repeat` times, up to an ending; return the steps taken too."""
        if self.action_repeat == 1:
            return self.env.step(world, action), jnp.ones((), jnp.int32)

        def once(carry, _):
            world, reward, metrics, taken, over = carry
            after = typed_like(self.env.step(world, action), world)
            reward = reward + jnp.where(over, 0.0, after.reward)
            metrics = {k: metrics[k] + jnp.where(over, 0.0, v) for k, v in after.metrics.items()}
            world = jax.tree.map(lambda old, new: jnp.where(over, old, new), world, after)
            taken = taken + ~over
            return (world, reward, metrics, taken, over | (world.done > 0) | cut(world)), None

        nothing = {k: jnp.zeros((), jnp.float32) for k in world.metrics}
        zero = jnp.zeros((), jnp.float32)
        start = (world, zero, nothing, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
        end, _ = jax.lax.scan(once, start, length=self.action_repeat)
        world, reward, metrics, taken, _ = end
        if "success" in metrics:
            metrics["success"] = world.metrics["success"]
        return world.replace(reward=reward, metrics=metrics), taken

    def _count(
        self, state: EnvState, reward: Array, taken: Array, ended: Array, healthy: Array
    ) -> EnvState:
        """Add this step to the running episode, and ended episodes to the finished sums."""
        running = {
            "return": state.running["return"] + reward,
            "length": state.running["length"] + taken,
        }
        for name, value in state.world.metrics.items():
            value = jnp.nan_to_num(value.astype(jnp.float32), posinf=0.0, neginf=0.0)
            # Success is what holds at the end; every other metric is summed like the reward.
            running[name] = value if name == "success" else state.running[name] + value
        complete = ended & state.whole
        finished = {
            name: state.finished[name] + jnp.where(complete, running[name], 0.0) for name in running
        }
        finished["count"] = state.finished["count"] + complete
        finished["diverged"] = state.finished["diverged"] + ~healthy
        return state.replace(running=running, finished=finished)
