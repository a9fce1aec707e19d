"""What PPO's gradient steps read: a rollout, judged once and cut into segments."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.config import PPOConfig
from jaxrl.learning import normalizer, segments
from jaxrl.learning.gae import gae
from jaxrl.learning.normalizer import Moments
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, PyTree, Rollout


class Batch(NamedTuple):
    """What one minibatch update reads: segments [T, rows, ...]."""

    obs: PyTree  # normalised
    raw_action: Array
    log_prob: Array
    value: Array  # in the critic's own (maybe normalised) units
    target: Array  # likewise
    advantage: Array
    ended: PyTree  # after which steps memory is emptied; () without memory
    carry: PyTree  # memory before the first step, [1, rows, ...]


class PPOState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: PyTree  # {"actor", "critic"}; one vector while gradient steps are taken
    initial_params: PyTree  # for the L2-to-initial loss, else ()
    optimizer: PyTree  # over all parameters as one vector
    observations: Moments
    returns: Moments  # of the running discounted return, for reward normalisation
    values: Moments  # of the value targets, for value normalisation
    hyper: dict[str, Array]
    total_iterations: Array  # int32, where schedules end
    learning_rate: Array  # moves with the schedule
    skipped: Array  # int32, gradient steps left out because they were not finite
    bad_streak: Array  # int32, how many of those in a row up to now


@dataclass(frozen=True)
class Judge:
    """From a rollout to a batch; every method is a pure function."""

    config: PPOConfig
    networks: ActorCritic
    horizon: int

    def _judge(
        self, learner: PPOState, experience: Rollout, obs: PyTree, carry: PyTree
    ) -> tuple[Array, Array, PyTree, PyTree]:
        """Return values, their successors' values, and the critic's memory: before each segment,
        and after the last step.
        """
        next_obs = normalizer.normalize(learner.observations, experience.next_obs)
        ended = experience.terminated | experience.truncated
        judge, params = self.networks.judge, learner.params["critic"]
        if not jax.tree.leaves(carry):
            value, next_value, _ = judge(params, obs, next_obs, (), None)
            return value, next_value, (), ()

        def part(carry: PyTree, inputs: tuple):
            value, next_value, after = judge(params, inputs[0], inputs[1], carry, inputs[2])
            return after, (carry, value, next_value)

        parts = segments.split_time((obs, next_obs, ended), self.horizon)
        after, (before, *values) = jax.lax.scan(part, carry, parts)
        value, next_value = segments.merge_time(tuple(values))
        return value, next_value, segments.cut_starts(before), after

    def batch(
        self, learner: PPOState, experience: Rollout, reward: Array, critic_carry: PyTree
    ) -> tuple[Batch, PyTree]:
        """Judge the rollout once, then cut it into segments.

        The values of every step and of its true successor give the advantages. The critic's
        memory after the last step is returned too.
        """
        obs = normalizer.normalize(learner.observations, experience.obs)
        value, next_value, before, after = self._judge(learner, experience, obs, critic_carry)
        advantage, target = self._advantages(learner, experience, reward, value, next_value)
        ended = experience.terminated | experience.truncated
        whole = Batch(
            obs=obs,
            raw_action=experience.extras.raw_action,
            log_prob=experience.extras.log_prob,
            value=value,
            target=target,
            advantage=advantage,
            ended=ended if self.networks.has_memory else (),
            carry=(),
        )
        starts = {"actor": segments.cut_starts(experience.carry), "critic": before}
        return segments.cut(whole, self.horizon)._replace(carry=starts), after

    def _advantages(
        self,
        learner: PPOState,
        experience: Rollout,
        reward: Array,
        value: Array,
        next_value: Array,
    ) -> tuple[Array, Array]:
        """Return advantages, and what the critic should have said, in its own units."""
        center = learner.values.mean if self.config.normalize_value else 0.0
        spread = normalizer.std(learner.values) if self.config.normalize_value else 1.0
        advantage, target = gae(
            reward,
            value * spread + center,
            next_value * spread + center,
            experience.terminated,
            experience.truncated,
            gamma=learner.hyper["gamma"],
            lam=learner.hyper["lam"],
        )
        if self.config.normalize_advantage == "batch":
            advantage = standardize(advantage)
        return advantage, (target - center) / spread


def standardize(x: Array) -> Array:
    """Return x with mean 0 and standard deviation 1."""
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-8)
