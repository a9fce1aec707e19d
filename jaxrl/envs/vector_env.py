"""N copies of one environment: time limit, episode statistics, and resets from a pool.

Resetting every environment at every step would double the cost; caching one first state would
start every episode alike. So a pool of start states is sampled now and then, and an environment
whose episode ends takes one of them.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.envs import checks, episode_stats, nan_capture
from jaxrl.envs.action_repeat import repeat_action
from jaxrl.envs.env_state import (
    LazyEnv,
    PackedEnvState,
    Template,
    describe,
    is_truncated,
    pack,
    physics,
    strong,
    truncation,
    typed_like,
    unpack,
    with_fresh_keys,
)
from jaxrl.envs.episode_stats import EpisodeStats
from jaxrl.envs.hooks import Hooks
from jaxrl.envs.rows import (
    all_finite,
    as_mask,
    choose,
    length_of,
    merge_agents,
    split_agents,
    zero_nonfinite,
)
from jaxrl.types import ActionSpec, Array, EnvSpec, Key, Metrics, PyTree, RewardFn

if TYPE_CHECKING:
    from brax.envs.base import State


class EnvState(struct.PyTreeNode):
    """The state of N environments."""

    packed: PackedEnvState  # [N, ...]
    age: Array  # int32 [N], environment steps since the episode began
    statistics: EpisodeStats
    pending_reward: Any = ()  # Array [N, ...], with episodic rewards: the sum not yet returned
    nan_capture: Any = ()  # NonFiniteCapture, if non-finite steps are captured
    start: Any = ()  # PackedEnvState [N, ...], if every episode starts in the same state
    # What `hooks.SharedArrays` returned, without an axis of environments. Only inside programs: no
    # checkpoint holds it, and no device a part of it.
    shared: Any = ()


class StepResult(NamedTuple):
    """What one step returned, a row for each agent: [rows, ...]."""

    reward: Array
    terminated: Array
    truncated: Array
    next_obs: PyTree
    # Return and length of episodes that ended here, [environments], if they are recorded.
    finished: dict[str, Array] = {}


@dataclass(frozen=True)
class VectorEnv:
    """N copies of a Brax environment behind pure functions.

    An environment with several agents (`num_agents`) has an agent axis in its observation, action
    and reward. Callers see N · agents rows; the agents of one environment are neighbours.
    """

    env: LazyEnv
    num_envs: int
    episode_length: int
    action_repeat: int = 1
    pool_size: int = 64
    fresh_resets: bool = True  # False: every environment returns to its own first state
    random_first_age: bool = True
    episodic_reward: bool = False  # reward: the sum when the episode ends, 0 before
    reward_fn: RewardFn | None = None  # replaces the environment's reward, except in statistics
    record_episodes: bool = False  # return each finished episode, besides the means
    capture_nonfinite: bool = False  # store the first step that became non-finite
    randomized: bool = False  # `reset` samples physics, and takes `nominal`
    nominal: bool = False  # start in the physics of the model, where others are randomised
    trials: bool = False  # start in the environment's fixed starts, one in each copy
    trial_numbers: tuple[int, ...] | None = None  # which of them; None: the first `num_envs`
    cached_template: Template | None = None  # from an earlier run: avoids building the environment

    @functools.cached_property
    def _start_shapes(self) -> "State":
        """Shapes of one Brax state."""
        with physics(), checks.tracing():
            return jax.eval_shape(self.env.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))

    @functools.cached_property
    def template(self) -> Template:
        """Shapes and sizes of one environment; this may build and trace it."""
        return self.cached_template or describe(self.env, self._start_shapes)

    @property
    def full_template(self) -> Template:
        """The same, with all leaves of the Brax state carried."""
        return describe(self.env, self._start_shapes, keep_all=True)

    @property
    def spec(self) -> EnvSpec:
        """Shapes of observations and actions."""
        template = self.template
        obs = template.state_shapes.obs
        if template.agents:
            obs = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), obs)
        return EnvSpec(obs, template.action, template.tokens)

    @property
    def longest_episode(self) -> int:
        """Actions in an episode that reaches its time limit."""
        return -(-self.episode_length // self.action_repeat)

    @property
    def rows(self) -> int:
        """Agents in all environments."""
        return self.num_envs * (self.template.agents or 1)

    @property
    def first_curriculum(self) -> PyTree:
        """The initial distribution of start states; () if it never changes."""
        return jax.tree.map(jnp.asarray, self.template.curriculum)

    @property
    def hooks(self) -> Hooks:
        """The optional methods of the environment."""
        template = self.template
        return Hooks(self.env, bool(jax.tree.leaves(template.curriculum)), bool(template.trials))

    def pack(self, state: "State") -> PackedEnvState:
        """Return the part of a Brax state that is carried from step to step."""
        return pack(state, self.template.carried_leaves)

    def brax_state(self, packed: PackedEnvState) -> "State":
        """Return the Brax state, for the environment's own functions."""
        return unpack(packed, self._start_shapes, self.template.carried_leaves)

    def abstract_pool(self) -> PackedEnvState:
        """Return the shapes of a pool, without tracing the physics again."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.pool_size, *leaf.shape), leaf.dtype),
            self.template.state_shapes,
        )

    def sample_pool(
        self,
        key: Key,
        curriculum: PyTree = (),
        shared: PyTree = (),
        nominal: Array | bool | None = None,
    ) -> PackedEnvState:
        """Sample the start states of the episodes to come."""
        return self.sample_starts(key, self.pool_size, curriculum, shared, nominal)

    def sample_starts(
        self,
        key: Key,
        number: int,
        curriculum: PyTree = (),
        shared: PyTree = (),
        nominal: Array | bool | None = None,
    ) -> PackedEnvState:
        """Sample `number` start states, by default from the evaluations' distribution.

        `nominal`: use the model's own physics even if it is `randomized`; None: `self.nominal`.
        Brax environments take raw keys.
        """
        nominal = self.nominal if nominal is None else nominal
        physics_of = {"nominal": jnp.asarray(nominal)} if self.randomized else {}
        keys = jax.random.key_data(jax.random.split(key, number))
        last = jax.tree.map(jnp.asarray, self.template.last_curriculum)
        arguments = [tree for tree in (curriculum, last) if jax.tree.leaves(tree)][:1]
        arguments += _given(shared)
        with physics():
            starts = jax.vmap(lambda key: self.env.reset(key, *arguments, **physics_of))(keys)
            return self.pack(strong(starts))

    def trial_starts(self, shared: PyTree = ()) -> PackedEnvState:
        """Return the environment's fixed start states."""
        chosen = self.trial_numbers
        numbers = jnp.arange(self.num_envs) if chosen is None else jnp.asarray(chosen)
        with physics():
            starts = jax.vmap(lambda number: self.env.trial(number, *_given(shared)))(numbers)
            return self.pack(strong(starts))

    def reset(
        self,
        key: Key,
        pool: PackedEnvState | None = None,
        *,
        stagger: bool | None = None,
        shared: PyTree = (),
    ) -> EnvState:
        """Start all environments, in states from the pool if there is one.

        Staggered ages spread later resets over time. `shared` is stored in the state.
        """
        stagger = self.random_first_age if stagger is None else stagger
        key_start, key_age = jax.random.split(key)
        if self.trials:
            packed = self._with_own_noise(self.trial_starts(shared), key_start)
        elif pool is None:
            packed = self.sample_starts(key_start, self.num_envs, shared=shared)
        else:
            row = jnp.arange(self.num_envs) % length_of(pool)
            packed = jax.tree.map(lambda leaf: leaf[row], pool)
            packed = self._with_own_noise(packed, key_start)
        age = jnp.zeros(self.num_envs, jnp.int32)
        if stagger:
            age = jax.random.randint(key_age, (self.num_envs,), 0, max(self.longest_episode, 1))
            age = age * self.action_repeat
        agents = self.template.agents
        shape = (self.num_envs, agents) if agents else (self.num_envs,)
        pending_reward = jnp.zeros(shape, jnp.float32) if self.episodic_reward else ()
        captured = ()
        if self.capture_nonfinite:
            action = _zero_action(self.template.action, shape)
            captured = nan_capture.empty(packed, action, jnp.zeros(shape, jnp.float32))
        statistics = episode_stats.init(age == 0, packed.metrics)
        start = () if self.fresh_resets else packed
        return EnvState(packed, age, statistics, pending_reward, captured, start, shared)

    def observe(self, state: EnvState) -> PyTree:
        """Return the observation of each agent, [rows, ...]; finite, even if a reset was not."""
        return merge_agents(zero_nonfinite(state.packed.obs), self.template.agents)

    def record(self, state: EnvState) -> PyTree:
        """Return what the environment records of trials, [N, ...]; () outside of trials."""
        if not self.trials:
            return ()
        with physics():
            return jax.vmap(lambda one: self.env.record(one, *_given(state.shared)))(
                self.brax_state(state.packed)
            )

    def step(
        self, state: EnvState, action: Array, pool: PackedEnvState, key: Key
    ) -> tuple[EnvState, StepResult]:
        """Step all environments, then reset those whose episode ended."""
        state, result = self._advance(state, split_agents(action, self.template.agents))
        ended = result.terminated | result.truncated
        return state.replace(
            packed=choose(ended, self._next_starts(state, pool, key), state.packed),
            age=jnp.where(ended, 0, state.age),
            statistics=episode_stats.restart(state.statistics, ended),
        ), self._per_agent(result)

    def advance(self, state: EnvState, action: Array) -> tuple[EnvState, StepResult]:
        """Step all environments, without resetting those whose episode ended."""
        state, result = self._advance(state, split_agents(action, self.template.agents))
        return state, self._per_agent(result)

    def pop_statistics(self, state: EnvState) -> tuple[EnvState, Metrics]:
        """Return the means over finished episodes, and the state without them."""
        statistics, metrics = episode_stats.pop(state.statistics)
        return state.replace(statistics=statistics), metrics

    def _advance(self, state: EnvState, action: Array) -> tuple[EnvState, StepResult]:
        """Step; endings are [N], reward and observation have the agent axis if there is one."""
        before, shared = self.brax_state(state.packed), _given(state.shared)

        def step(one: "State", its_action: Array) -> "State":
            return self.env.step(one, its_action, *shared)

        with physics():
            after, steps = jax.vmap(lambda s, a: repeat_action(step, s, a, self.action_repeat))(
                before, action
            )
        after = typed_like(after, before)
        # A non-finite observation before the step comes from a reset: its first step reports it.
        finite = all_finite(before.obs, after.obs, after.reward, after.done, truncation(after))
        captured = state.nan_capture
        if self.capture_nonfinite:
            captured = nan_capture.capture(captured, finite, state.age, state.packed, action, after)
        obs = choose(finite, after.obs, zero_nonfinite(before.obs))
        reward = jnp.where(as_mask(finite, after.reward), after.reward, 0.0).astype(jnp.float32)
        after = after.replace(obs=obs, reward=reward.astype(after.reward.dtype))
        age = state.age + steps
        truncated_by_env = is_truncated(after)
        # A non-finite environment terminates here and is reset; nobody learns from NaN.
        terminated = ((after.done > 0) & ~truncated_by_env) | ~finite
        truncated = ((age >= self.episode_length) | truncated_by_env) & ~terminated
        mean_reward = jnp.mean(reward.reshape(self.num_envs, -1), axis=1)
        statistics = episode_stats.update(
            state.statistics, after.metrics, mean_reward, steps, terminated | truncated, finite
        )
        if self.reward_fn is not None:
            learnt = self.reward_fn(zero_nonfinite(before.obs), action, obs)
            reward = jnp.where(as_mask(finite, learnt), learnt, 0.0)
        pending_reward = state.pending_reward
        if self.episodic_reward:
            ended = as_mask(terminated | truncated, reward)
            due = pending_reward + reward
            reward, pending_reward = jnp.where(ended, due, 0.0), jnp.where(ended, 0.0, due)
        state = EnvState(
            self.pack(after), age, statistics, pending_reward, captured, state.start, state.shared
        )
        finished = (
            episode_stats.finished_episodes(statistics, terminated | truncated)
            if self.record_episodes
            else {}
        )
        return state, StepResult(reward, terminated, truncated, obs, finished)

    def _next_starts(self, state: EnvState, pool: PackedEnvState, key: Key) -> PackedEnvState:
        """Return where each environment's next episode would start."""
        if not self.fresh_resets:
            return self._with_own_noise(state.start, key)
        # One draw, where `randint` makes three to be exactly even: here it is off by a millionth.
        index = jax.random.bits(key, (self.num_envs,), jnp.uint32) % length_of(pool)
        return self._with_own_noise(jax.tree.map(lambda leaf: leaf[index], pool), key)

    def _with_own_noise(self, packed: PackedEnvState, key: Key) -> PackedEnvState:
        """Give each environment random keys of its own, if its state carries any."""
        leaves = self.template.key_leaves
        return with_fresh_keys(packed, leaves, jax.random.fold_in(key, 1)) if leaves else packed

    def _per_agent(self, result: StepResult) -> StepResult:
        """Give every agent a row; all agents of an environment end together."""
        agents = self.template.agents
        if not agents:
            return result
        return StepResult(
            reward=merge_agents(result.reward, agents),
            terminated=jnp.repeat(result.terminated, agents),
            truncated=jnp.repeat(result.truncated, agents),
            next_obs=merge_agents(result.next_obs, agents),
            finished=result.finished,
        )


def _given(shared: PyTree) -> list[PyTree]:
    """Return the last argument of an environment's functions, if it takes one."""
    return [shared] if jax.tree.leaves(shared) else []


def _zero_action(spec: ActionSpec, shape: tuple[int, ...]) -> Array:
    if spec.discrete:
        return jnp.zeros(shape, jnp.int32)
    return jnp.zeros((*shape, spec.size), jnp.float32)
