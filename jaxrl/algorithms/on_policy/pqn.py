"""Parallelised Q-network (PQN): Q-learning on rollouts, without replay and target networks.

One network estimates the values of all actions; the policy is ε-greedy with a falling ε. Targets
are λ-returns that bootstrap from the best action, computed once for a rollout by the network that
is then trained: layer normalisation keeps that from diverging.
Reference: Gallici et al., 2024.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.on_policy.base import HParams, OnPolicyAlgorithm, Params
from jaxrl.algorithms.policy import action_values, greedy_network, set_epsilon
from jaxrl.config import NetworkConfig, PQNConfig, TrainConfig
from jaxrl.learning import losses
from jaxrl.learning.gae import lambda_returns
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree, Rollout


class Batch(NamedTuple):
    """What one gradient step reads: single steps, [1, rows, ...]."""

    obs: PyTree  # normalised
    action: Array
    target: Array  # λ-return of the action


def make_batch(
    networks: ActorCritic, params: Params, hparams: HParams, steps: Rollout, key: Key
) -> Batch:
    """Compute λ-returns that bootstrap from the best action of the true successor."""
    del key
    next_values = action_values(networks, params["q"], steps.next_obs)
    target = lambda_returns(
        steps.reward,
        jnp.max(next_values, axis=-1),
        steps.terminated,
        steps.truncated,
        gamma=hparams["gamma"],
        lam=hparams["lam"],
    )
    return Batch(steps.obs, steps.action, target)


def loss(
    networks: ActorCritic, params: Params, hparams: HParams, batch: Batch, key: Key
) -> tuple[Array, Metrics]:
    """Return half the mean squared error of the values of the actions that were taken."""
    del hparams, key
    values = action_values(networks, params["q"], batch.obs)
    q = jnp.take_along_axis(values, batch.action[..., None], axis=-1)[..., 0]
    q_loss = 0.5 * losses.value_loss(q, batch.target)
    metrics = {
        "train/q_loss": q_loss,
        "train/q_mean": jnp.mean(q),
        "train/explained_variance": losses.explained_variance(q, batch.target),
    }
    return q_loss, {name: Mean.of(value) for name, value in metrics.items()}


def make(config: PQNConfig, networks: ActorCritic) -> OnPolicyAlgorithm:
    """Compose PQN; its one network is the actor."""

    def explore(progress: Array, params: PyTree) -> PyTree:
        return set_epsilon(params, progress, config.epsilon_fraction, config.epsilon_end)

    return OnPolicyAlgorithm(
        init=lambda key: {"q": networks.actor.init(key)},
        make_batch=partial(make_batch, networks),
        loss=partial(loss, networks),
        actor="q",
        explore=explore,
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OnPolicyAlgorithm:
    del spec
    return make(config.pqn, networks)


def _network(config: TrainConfig) -> NetworkConfig:
    return greedy_network(config.network, "layer" if config.pqn.layer_norm else "none")


DEFINITION = Definition(_from_config, _network)
