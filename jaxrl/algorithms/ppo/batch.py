"""What PPO's gradient steps read: a rollout, judged once and cut into segments."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.config import PPOConfig
from jaxrl.learning import normalizer, segments
from jaxrl.learning.gae import gae
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import ActorCritic, Network, visible
from jaxrl.types import Array, PyTree, Rollout


class Steps(NamedTuple):
    """What advantages are made of, [T, rows]; kept where they are made more than once."""

    reward: Array
    next_value: Array  # in the critic's own units, as the value
    terminated: Array
    truncated: Array


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
    steps: PyTree  # Steps, or () if advantages stay as they are
    teacher: PyTree  # a teacher's output for the same observations, or ()
    weight: PyTree  # of each row, [1, rows]; () if all count alike
    noise: PyTree  # for the entropy of distributions that need some; drawn for each minibatch


class PPOState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: PyTree  # {"actor", "critic"}; one vector while gradient steps are taken
    initial_params: PyTree  # for the L2-to-initial loss, else ()
    teacher: PyTree  # a trained policy's parameters, or ()
    optimizer: PyTree  # over all parameters as one vector
    observations: RunningStats
    returns: RunningStats  # of the running discounted return, for reward normalisation
    values: RunningStats  # of the value targets, for value normalisation
    hparams: dict[str, Array]
    total_iterations: Array  # int32, where schedules end
    learning_rate: Array  # moves with the schedule
    skipped_updates: Array  # int32, gradient steps left out because they were not finite
    nonfinite_streak: Array  # int32, how many of those in a row up to now
    amp: PyTree = ()  # what a discriminator has learnt, if there is one


@dataclass(frozen=True)
class Judge:
    """From a rollout to a batch; every method is a pure function."""

    config: PPOConfig
    networks: ActorCritic
    teacher: Network | None

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

        parts = segments.split_time((obs, next_obs, ended), self.config.horizon)
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
            obs=visible(obs),
            raw_action=experience.extras.raw_action,
            log_prob=experience.extras.log_prob,
            value=value,
            target=target,
            advantage=advantage,
            ended=ended if self.networks.has_memory else (),
            carry=(),
            steps=self._steps(experience, reward, next_value),
            teacher=self._taught(learner, experience.obs),
            weight=(),
            noise=(),
        )
        starts = {"actor": segments.cut_starts(experience.carry), "critic": before}
        return segments.cut(whole, self.config.horizon)._replace(carry=starts), after

    def _steps(self, experience: Rollout, reward: Array, next_value: Array) -> PyTree:
        if self.config.advantage == "gae":
            return ()
        return Steps(reward, next_value, experience.terminated, experience.truncated)

    def _taught(self, learner: PPOState, obs: PyTree) -> PyTree:
        """Return what the teacher would do, from observations as it knows them."""
        if self.teacher is None:
            return ()
        params = learner.teacher
        return self.teacher.apply(params.actor, normalizer.normalize(params.observations, obs), ())[
            0
        ]

    def _advantages(
        self,
        learner: PPOState,
        experience: Rollout,
        reward: Array,
        value: Array,
        next_value: Array,
    ) -> tuple[Array, Array]:
        """Return advantages, and what the critic should have said, in its own units."""
        center, spread = value_units(self.config, learner)
        advantage, target = gae(
            reward,
            value * spread + center,
            next_value * spread + center,
            experience.terminated,
            experience.truncated,
            gamma=learner.hparams["gamma"],
            lam=learner.hparams["lam"],
        )
        if self.config.normalize_advantage == "batch":
            advantage = standardize(advantage)
        return advantage, (target - center) / spread


def value_units(config: PPOConfig, learner: PPOState) -> tuple[Array | float, Array | float]:
    """Return (center, spread): a value is its critic's output × spread + center."""
    if not config.normalize_value:
        return 0.0, 1.0
    return learner.values.mean, normalizer.std(learner.values)


def standardize(x: Array) -> Array:
    """Return x with mean 0 and standard deviation 1."""
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-8)
