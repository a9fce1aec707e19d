"""PPO's records, and how a rollout becomes a batch: values, advantages, segments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.algorithms.amp import AMP
from jaxrl.algorithms.policy import PolicyParams
from jaxrl.algorithms.ppo.value_parts import merge_rows, split_rows
from jaxrl.config import PPOConfig
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer, segments
from jaxrl.learning.gae import gae
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import ActorCritic, Network, network_obs
from jaxrl.types import Array, PyTree, Rollout

# (networks, params, batch, actor's output, value) -> scalar that is added to the loss
ExtraLoss = Callable[[ActorCritic, PyTree, "Batch", Array, Array], Array]


class Teacher(NamedTuple):
    """A trained policy to distil: its network, which is not recurrent, and its parameters."""

    network: Network
    params: PolicyParams


@dataclass(frozen=True)
class PPO:
    """What PPO is composed of; its stages are pure functions of this and their arguments."""

    config: PPOConfig
    env: VectorEnv
    networks: ActorCritic
    total_iterations: int
    num_shards: int = 1  # devices that the environments are split over
    teacher: Teacher | None = None
    amp: AMP | None = None
    extra_loss: ExtraLoss | None = None


class PPOState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: PyTree  # {"actor", "critic"}; one vector while gradient steps are taken
    initial_params: PyTree  # for the L2-to-initial loss, else ()
    teacher: PyTree  # the teacher's PolicyParams, or ()
    optimizer: PyTree  # over all parameters as one vector
    obs_stats: RunningStats
    return_stats: RunningStats  # of the running discounted return, for reward normalisation
    value_stats: RunningStats  # of the value targets, for value normalisation
    hparams: dict[str, Array]
    total_iterations: Array  # int32, where schedules end
    learning_rate: Array  # changes with the schedule
    skipped_updates: Array  # int32, gradient steps skipped because they were not finite
    nonfinite_streak: Array  # int32, consecutive skipped steps up to now
    amp: PyTree = ()  # AMPState, or ()


class VTraceInputs(NamedTuple):
    """What V-trace recomputes advantages from, [T, rows]."""

    reward: Array
    next_value: Array  # in the critic's units, as the value
    terminated: Array
    truncated: Array


class Batch(NamedTuple):
    """What one minibatch update reads: segments [T, rows, ...]."""

    obs: PyTree  # normalised
    raw_action: Array
    log_prob: Array
    value: Array  # in the critic's (maybe normalised) units
    target: Array  # likewise
    advantage: Array
    ended: PyTree  # after which steps the carry is reset; () if not recurrent
    carry: PyTree  # before the first step, [1, rows, ...]
    vtrace: PyTree  # VTraceInputs, or () for GAE
    teacher_output: PyTree  # the teacher's output for the same observations, or ()
    weight: PyTree  # importance weight of each row, [1, rows]; () if all are 1
    noise: PyTree  # for entropies that are estimated from noise; sampled for each minibatch


def make_batch(
    ppo: PPO, learner: PPOState, experience: Rollout, reward: Array, critic_carry: PyTree
) -> tuple[Batch, PyTree]:
    """Compute values, advantages and targets of a rollout, then cut it into segments.

    Returns the batch, and the critic's carry after the last step.
    """
    obs = normalizer.normalize(learner.obs_stats, experience.obs)
    value, next_value, carry_before, carry_after = _values(
        ppo, learner, experience, obs, critic_carry
    )
    advantage, target = _advantages(ppo.config, learner, experience, reward, value, next_value)
    ended = experience.terminated | experience.truncated
    vtrace = VTraceInputs(reward, next_value, experience.terminated, experience.truncated)
    batch = Batch(
        obs=network_obs(obs),
        raw_action=experience.extras.raw_action,
        log_prob=experience.extras.log_prob,
        value=value,
        target=target,
        advantage=advantage,
        ended=ended if ppo.networks.is_recurrent else (),
        carry=(),
        vtrace=vtrace if ppo.config.advantage == "vtrace" else (),
        teacher_output=_teacher_output(ppo, learner, experience.obs),
        weight=(),
        noise=(),
    )
    carry = {"actor": segments.cut_starts(experience.carry), "critic": carry_before}
    return segments.cut(batch, ppo.config.horizon)._replace(carry=carry), carry_after


def _values(
    ppo: PPO, learner: PPOState, experience: Rollout, obs: PyTree, carry: PyTree
) -> tuple[Array, Array, PyTree, PyTree]:
    """Return V(s_t) and V(s'_t) [T, N], and the critic's carry before each segment and at the end.

    V(s'_t) is the value of the true successor, also where the episode ended.
    """
    next_obs = normalizer.normalize(learner.obs_stats, experience.next_obs)
    ended = experience.terminated | experience.truncated
    steps, shards, parts = (obs, next_obs, ended), ppo.num_shards, ppo.config.value_parts or 1
    if parts == 1:
        value, next_value, carry_before, carry_after = _values_of_rows(ppo, learner, steps, carry)
    else:
        split = (split_rows(steps, parts, shards, 1), split_rows(carry, parts, shards, 0))
        found = jax.lax.map(lambda part: _values_of_rows(ppo, learner, *part), split)
        *found, carry_after = found
        value, next_value, carry_before = merge_rows(tuple(found), shards, 1)
        carry_after = merge_rows(carry_after, shards, 0)
    return value, next_value, segments.cut_starts(carry_before), carry_after


def _values_of_rows(
    ppo: PPO, learner: PPOState, steps: tuple[PyTree, PyTree, Array], carry: PyTree
) -> tuple[Array, Array, PyTree, PyTree]:
    """Return the values of some rows, and the carry before each segment and at the end."""
    values, params = ppo.networks.values, learner.params["critic"]
    if not jax.tree.leaves(carry):
        value, next_value, _ = values(params, *steps[:2], (), None)
        return value, next_value, (), ()

    def segment(carry: PyTree, inputs: tuple):
        value, next_value, carry_after = values(params, inputs[0], inputs[1], carry, inputs[2])
        return carry_after, (carry, value, next_value)

    inputs = segments.split_time(steps, ppo.config.horizon)
    carry_after, (carry_before, *values_by_segment) = jax.lax.scan(segment, carry, inputs)
    value, next_value = segments.merge_time(tuple(values_by_segment))
    return value, next_value, carry_before, carry_after


def _advantages(
    config: PPOConfig,
    learner: PPOState,
    experience: Rollout,
    reward: Array,
    value: Array,
    next_value: Array,
) -> tuple[Array, Array]:
    """Return advantages, and the critic's targets in its own units."""
    mean, std = value_scale(config, learner)
    advantage, target = gae(
        reward,
        value * std + mean,
        next_value * std + mean,
        experience.terminated,
        experience.truncated,
        gamma=learner.hparams["gamma"],
        lam=learner.hparams["lam"],
    )
    if config.normalize_advantage == "batch":
        advantage = standardize(advantage, config.advantage_floor)
    return advantage, (target - mean) / std


def _teacher_output(ppo: PPO, learner: PPOState, obs: PyTree) -> PyTree:
    """Return the teacher's output, for observations normalised by its own statistics."""
    if ppo.teacher is None:
        return ()
    params = learner.teacher
    normal_obs = normalizer.normalize(params.obs_stats, obs)
    return ppo.teacher.network.apply(params.actor, normal_obs, ())[0]


def value_scale(config: PPOConfig, learner: PPOState) -> tuple[Array | float, Array | float]:
    """Return (mean, std): a value is the critic's output × std + mean."""
    if not config.normalize_value:
        return 0.0, 1.0
    return learner.value_stats.mean, normalizer.std(learner.value_stats)


def standardize(x: Array, floor: float = 0.0) -> Array:
    """Return x with mean 0 and standard deviation 1, or less where it was less than the floor."""
    return (x - jnp.mean(x)) / (jnp.maximum(jnp.std(x), floor) + 1e-8)
