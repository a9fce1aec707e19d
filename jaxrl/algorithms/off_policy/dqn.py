"""Deep Q-learning for discrete actions: one network values all actions, and acts greedily.

With `cql_alpha` it also learns low values for actions that are not in the batch (CQL), for recorded
data. References: Mnih et al., 2015; van Hasselt et al., 2016 (double); Kumar et al., 2020.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.off_policy.base import (
    HParams,
    OffPolicyAlgorithm,
    Params,
    discount,
)
from jaxrl.algorithms.policy import action_values, greedy_network, set_epsilon
from jaxrl.config import NetworkConfig, OffPolicyConfig, TrainConfig
from jaxrl.learning import td
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree


def make(config: OffPolicyConfig, networks: ActorCritic) -> OffPolicyAlgorithm:
    """Compose DQN; its one network is the actor."""

    q_values = partial(action_values, networks)

    def losses(
        params: Params, target_params: Params, batch: Transition, key: Key, hparams: HParams
    ) -> tuple[Array, Metrics]:
        del key
        next_values = q_values(target_params["critic"], batch.next_obs)
        chooser = params["critic"] if config.double else target_params["critic"]
        next_action = jnp.argmax(q_values(chooser, batch.next_obs), axis=-1)
        next_q = jnp.take_along_axis(next_values, next_action[:, None], axis=-1)[:, 0]
        gamma = discount(batch, hparams["gamma"])
        target = td.target(batch.reward, next_q, batch.terminated, gamma=gamma)
        values = q_values(params["critic"], batch.obs)
        q = jnp.take_along_axis(values, batch.action[:, None], axis=-1)[:, 0]
        loss = jnp.mean(optax.huber_loss(q, jax.lax.stop_gradient(target)))
        metrics = {"train/q_loss": Mean.of(loss), "train/q_mean": Mean.of(jnp.mean(q))}
        if config.cql_alpha:
            gap = jnp.mean(jax.nn.logsumexp(values, axis=-1) - q)
            metrics["train/cql_loss"] = Mean.of(gap)
            loss += hparams["cql_alpha"] * gap
        return loss, metrics

    def explore(progress: Array, params: PyTree) -> PyTree:
        return set_epsilon(params, progress, config.epsilon_fraction, config.epsilon_end)

    return OffPolicyAlgorithm(
        init=lambda key: {"critic": networks.actor.init(key)},
        losses=losses,
        actor="critic",
        targets=("critic",),
        rates={"critic": "q_lr"},
        explore=explore,
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OffPolicyAlgorithm:
    del spec
    return make(config.offpolicy, networks)


def _network(config: TrainConfig) -> NetworkConfig:
    return greedy_network(config.network, config.offpolicy.critic_norm)


DEFINITION = Definition(_from_config, _network)
