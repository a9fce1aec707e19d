"""The records that travel between environments, algorithms and the host loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
Key = jax.Array
PyTree = Any

# (params, obs, carry, key) -> (action, carry, extras). `carry` is () for a network without memory.
Policy = Callable[[PyTree, PyTree, PyTree, Key], tuple[Array, PyTree, Any]]


class Mean(NamedTuple):
    """A mean that can still be merged: metrics of iterations and devices simply add up."""

    total: Array
    count: Array

    @classmethod
    def of(cls, value: Array) -> "Mean":
        """Wrap one finished value."""
        return cls(jnp.asarray(value, jnp.float32), jnp.ones((), jnp.float32))


Metrics = dict[str, Mean]


def finished(metrics: Metrics) -> dict[str, float]:
    """Finish the means; a metric without data has no value."""
    return {k: float(m.total / m.count) for k, m in sorted(metrics.items()) if m.count > 0}


class ActionSpec(NamedTuple):
    """What an environment expects: `size` choices, or `size` numbers in [-1, 1]."""

    size: int
    discrete: bool


class EnvSpec(NamedTuple):
    """What a network must know of an environment."""

    obs: PyTree  # of jax.ShapeDtypeStruct, as one agent sees it
    action: ActionSpec
    tokens: tuple[int, ...] = ()  # how many values each feature of a token takes; (): no tokens


class Rollout(NamedTuple):
    """What `length` steps gave; time-major [T, N, ...], with a row for each agent."""

    obs: PyTree
    action: Array
    reward: Array
    terminated: Array  # the episode ended: nothing follows, no bootstrap
    truncated: Array  # the episode was cut: bootstrap from next_obs
    next_obs: PyTree  # the true successor, never the observation after a reset
    extras: Any  # what the policy noted, e.g. log-probabilities
    carry: PyTree  # the policy's memory before each segment's first step, [segments, N, ...]
    episodes: Metrics  # of the episodes that ended in here


class RolloutState(struct.PyTreeNode):
    """Everything with one row per environment: the part of the state that is sharded."""

    env: PyTree
    carry: PyTree  # the policy's memory
    critic_carry: PyTree  # the critic's
    discounted_return: PyTree  # [N] of running discounted returns, for reward normalisation; or ()
    replay: PyTree = ()  # ReplayState of an off-policy algorithm


class TrainState(struct.PyTreeNode):
    """Everything that can influence the next step; resuming is restoring this."""

    key: Key  # never changes: each iteration folds its own numbers in
    iteration: Array  # int32; environment steps follow from it on the host, without overflow
    collector: RolloutState
    # The algorithm's own: parameters, optimiser, statistics, hyper-parameters. Every learner
    # also has the int32 scalars `total_iterations`, `skipped_updates` and `nonfinite_streak`.
    learner: Any
    # What start states are drawn by, where that changes with what was learnt; () elsewhere.
    curriculum: PyTree = ()

    def key_for(self, use: int, uses: int) -> Key:
        """Return a key of this iteration, which needs `uses` of them."""
        return jax.random.fold_in(self.key, uses * self.iteration + use)


class Algorithm(NamedTuple):
    """A learning algorithm as a record of pure functions.

    `pool` are start states for the episodes to come; without it they are drawn where needed.
    """

    init: Callable[..., TrainState]  # (key, pool=None)
    learn: Callable[[TrainState, Rollout], tuple[TrainState, Metrics]]
    train_step: Callable[..., tuple[TrainState, Metrics]]  # (state, pool=None)
    policy: Callable[[bool], Policy]  # deterministic -> Policy
    policy_params: Callable[[Any], PyTree]  # learner -> what the policy needs
    initial_carry: Callable[[int], PyTree]
