"""REPPO's records, and how a rollout becomes a batch: soft rewards, λ-returns, single steps."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import optax
from flax import struct

from jaxrl.algorithms.policy import sample_action
from jaxrl.config import REPPOConfig
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.learning import normalizer, optimizer, segments, td
from jaxrl.learning.gae import lambda_returns
from jaxrl.learning.normalizer import RunningStats
from jaxrl.networks.actor_critic import ActorCritic, network_obs
from jaxrl.networks.embedding_critic import EmbeddingCritic
from jaxrl.types import Array, Key, PyTree, Rollout

# By network, each with its own optimiser. "duals" are the logarithms of α and β.
Params = dict[str, PyTree]


@dataclass(frozen=True)
class REPPO:
    """What REPPO is composed of; its stages are pure functions of this and their arguments."""

    config: REPPOConfig
    env: VectorEnv
    networks: ActorCritic  # of which the actor is used
    critic: EmbeddingCritic
    total_iterations: int
    num_shards: int = 1  # devices that the environments are split over

    @property
    def atoms(self) -> Array:
        """The support of the critic's distributions."""
        return td.support(*self.config.support)

    @property
    def transform(self) -> optax.GradientTransformation:
        """The optimiser of every network."""
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)


class REPPOState(struct.PyTreeNode):
    """The learner: everything that learning changes."""

    params: Params  # vectors while gradient steps are taken
    optimizer: dict[str, PyTree]
    obs_stats: RunningStats
    hparams: dict[str, Array]
    total_iterations: Array  # int32, where schedules end
    learning_rate: Array  # changes with the schedule
    skipped_updates: Array  # int32, gradient steps skipped because they were not finite
    nonfinite_streak: Array  # int32, consecutive skipped steps up to now


class Batch(NamedTuple):
    """What one minibatch update reads: single steps, [1, rows, ...]."""

    obs: PyTree  # normalised
    action: Array
    reward: Array  # scaled
    target: Array  # soft λ-return of the action
    next_embedding: Array  # of the true successor and an action of the policy
    old_output: Array  # the actor's output before the first gradient step


def make_batch(reppo: REPPO, learner: REPPOState, experience: Rollout, key: Key) -> Batch:
    """Compute the targets of a rollout with the current networks, then cut it into steps.

    The soft reward of a step has the entropy of the action after it, −α log π(a'|s'), discounted
    like the value Q(s', a') that it belongs to. A terminated step has neither.
    """
    networks, params, hparams = reppo.networks, learner.params, learner.hparams
    obs, next_obs = (
        network_obs(normalizer.normalize(learner.obs_stats, x))
        for x in (experience.obs, experience.next_obs)
    )
    next_action, next_log_prob = sample_action(networks, params["actor"], next_obs, key)
    next_output = reppo.critic.apply(params["critic"], next_obs, next_action)
    reward = experience.reward * hparams["reward_scale"]
    bonus = -jnp.exp(params["duals"]["log_alpha"]) * next_log_prob
    target = lambda_returns(
        td.target(reward, bonus, experience.terminated, gamma=hparams["gamma"]),
        td.expected(next_output.logits, reppo.atoms),
        experience.terminated,
        experience.truncated,
        gamma=hparams["gamma"],
        lam=hparams["lam"],
    )
    old_output, _ = networks.actor.apply(params["actor"], obs, ())
    batch = Batch(obs, experience.action, reward, target, next_output.embedding, old_output)
    return segments.cut(batch, 1)
