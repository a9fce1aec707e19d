"""The records that environments, algorithms and the training loop exchange."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
from flax import struct
from typing_extensions import TypeVar

__all__ = [
    "ActionSpec",
    "Algorithm",
    "EnvSpec",
    "Learner",
    "Mean",
    "Rollout",
    "RolloutState",
    "TrainState",
    "mean_values",
]

Array = jax.Array
Key = jax.Array
PyTree = Any

# (params, obs, carry, key) -> (action, carry, extras). `carry` is () if not recurrent.
Policy = Callable[[PyTree, PyTree, PyTree, Key], tuple[Array, PyTree, Any]]


# (obs, action, next_obs) -> reward [...], of any number of steps.
RewardFn = Callable[[PyTree, Array, PyTree], Array]


class Mean(NamedTuple):
    """A mean as total and count, so that metrics of iterations and devices add up."""

    total: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]

    @classmethod
    def of(cls, value: Array) -> "Mean":
        """Return the mean of one value."""
        return cls(jnp.asarray(value, jnp.float32), jnp.ones((), jnp.float32))


Metrics = dict[str, Mean]


def mean_values(metrics: Metrics) -> dict[str, float]:
    """Return total / count of every metric that has data."""
    return {k: float(m.total / m.count) for k, m in sorted(metrics.items()) if m.count > 0}


class ActionSpec(NamedTuple):
    """The action space: `size` discrete actions, or a vector of `size` in [-1, 1]."""

    size: int
    discrete: bool


class EnvSpec(NamedTuple):
    """Observation and action space of an environment."""

    obs: PyTree  # of jax.ShapeDtypeStruct, of one agent
    action: ActionSpec
    tokens: tuple[int, ...] = ()  # number of values of each feature of a token; (): no tokens


RECORDS = "episodes/"  # prefix of arrays of single episodes, beside metrics


class Rollout(NamedTuple):
    """The steps of a rollout; time-major [T, N, ...], with a row for each agent."""

    obs: PyTree
    action: Array
    reward: Array
    terminated: Array  # the episode ended: no bootstrap
    truncated: Array  # the episode was cut: bootstrap from next_obs
    next_obs: PyTree  # the true successor, never the observation after a reset
    extras: Any  # of the policy, e.g. log-probabilities
    carry: PyTree  # the network's carry before each segment, [segments, N, ...]
    episodes: Metrics  # of the episodes that ended in the rollout


class RolloutState(struct.PyTreeNode):
    """Everything with one row per environment: the part of the state that is sharded."""

    env: PyTree
    carry: PyTree  # of the policy: recurrent state and exploration noise, if any
    critic_carry: PyTree
    discounted_return: PyTree  # [N] of running discounted returns, for reward normalisation; or ()
    replay: PyTree = ()  # ReplayState of an off-policy algorithm


class Learner(Protocol):
    """What an algorithm learns, and learns with: parameters, optimiser, statistics.

    Every algorithm has a class of its own; this is what the host reads and replaces of any.
    """

    @property
    def params(self) -> PyTree:
        """The parameters of all networks."""
        ...

    @property
    def hparams(self) -> dict[str, Array]:
        """The traced settings, by name."""
        ...

    @property
    def total_iterations(self) -> Array:
        """The planned iterations, an int32: where schedules end."""
        ...

    @property
    def skipped_updates(self) -> Array:
        """The gradient steps that were skipped as non-finite, an int32."""
        ...

    @property
    def nonfinite_streak(self) -> Array:
        """Consecutive gradient steps that were skipped up to now, an int32."""
        ...

    def replace(self, **changes: Any) -> Self:
        """Return a learner with some fields replaced."""
        ...


# Left out, as in `TrainState`, it is any learner.
LearnerT = TypeVar("LearnerT", bound=Learner, default=Learner)


class TrainState(Generic[LearnerT], struct.PyTreeNode):
    """Everything that can influence the next step; resuming is restoring this."""

    key: Key  # constant: `key_for` folds the iteration in
    iteration: Array  # int32; the CPU computes environment steps from it, without overflow
    collector: RolloutState
    learner: LearnerT
    # What start states are sampled by, where that follows training; () elsewhere.
    curriculum: PyTree = ()

    def key_for(self, use: int, uses: int) -> Key:
        """Return key number `use` of the `uses` keys of this iteration."""
        return jax.random.fold_in(self.key, uses * self.iteration + use)


class Algorithm(NamedTuple, Generic[LearnerT]):
    """A learning algorithm as a record of pure functions.

    `pool` holds start states for new episodes; without it they are sampled where needed.
    """

    init: Callable[..., TrainState[LearnerT]]  # (key, pool=None)
    learn: Callable[[TrainState[LearnerT], Rollout], tuple[TrainState[LearnerT], Metrics]]
    train_step: Callable[..., tuple[TrainState[LearnerT], Metrics]]  # (state, pool=None)
    policy: Callable[[bool], Policy]  # deterministic -> Policy
    policy_params: Callable[[LearnerT], PyTree]  # params of the policy
    initial_carry: Callable[[int], PyTree]
    reward_params: Callable[[LearnerT], PyTree] | None = None  # params of a learnt reward
    rollout_carry: Callable[[int], PyTree] | None = None  # of rollouts, if not `initial_carry`
