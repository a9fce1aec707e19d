"""Implicit Q-learning: no action outside the data is ever evaluated.

V(s) is an upper expectile of Q(s, a) over recorded actions, Q bootstraps from V, and the policy is
regressed on recorded actions weighted by exp(β · advantage). Reference: Kostrikov et al., 2021.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.off_policy.base import (
    HParams,
    OffPolicyAlgorithm,
    Params,
    TwinCritic,
    build_critics,
    squared_loss,
)
from jaxrl.config import NetworkConfig, OffPolicyConfig, TrainConfig
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics

_MAX_WEIGHT = 100.0  # of a recorded action


def expectile_loss(error: Array, expectile: Array) -> Array:
    """Return squared errors, those above 0 weighted by `expectile` and the others by the rest."""
    weight = jnp.where(error > 0, expectile, 1.0 - expectile)
    return weight * jnp.square(error)


def make(config: OffPolicyConfig, networks: ActorCritic, critic: Critic) -> OffPolicyAlgorithm:
    """Compose IQL; its value network is the critic of `networks`."""
    twin = TwinCritic(config, critic)

    def init(key: Key) -> Params:
        key_actor, key_critic, key_value = jax.random.split(key, 3)
        return {
            "actor": networks.actor.init(key_actor),
            "critic": critic.init(key_critic),
            "value": networks.critic.init(key_value),
        }

    def losses(
        params: Params, target_params: Params, batch: Transition, key: Key, hparams: HParams
    ) -> tuple[Array, Metrics]:
        del key
        q = jax.lax.stop_gradient(twin.min_q(target_params["critic"], batch.obs, batch.action))
        value, _ = networks.critic.apply(params["value"], batch.obs, ())
        next_value, _ = networks.critic.apply(params["value"], batch.next_obs, ())
        v_loss = jnp.mean(expectile_loss(q - value, hparams["expectile"]))
        q_values = critic.apply(params["critic"], batch.obs, batch.action)
        q_loss, metrics = squared_loss(q_values, batch, next_value, hparams["gamma"])
        advantage = q - jax.lax.stop_gradient(value)
        weight = jnp.minimum(jnp.exp(hparams["awr_beta"] * advantage), _MAX_WEIGHT)
        out, _ = networks.actor.apply(params["actor"], batch.obs, ())
        pi_loss = -jnp.mean(weight * networks.distribution.log_prob(out, batch.action))
        metrics |= {
            "train/q_loss": Mean.of(q_loss),
            "train/v_loss": Mean.of(v_loss),
            "train/pi_loss": Mean.of(pi_loss),
            "train/advantage": Mean.of(jnp.mean(advantage)),
        }
        return q_loss + v_loss + pi_loss, metrics

    return OffPolicyAlgorithm(
        init=init,
        losses=losses,
        actor="actor",
        targets=("critic",),
        rates={"actor": "pi_lr", "critic": "q_lr", "value": "q_lr"},
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OffPolicyAlgorithm:
    return make(config.offpolicy, networks, build_critics(config, spec))


def _network(config: TrainConfig) -> NetworkConfig:
    return replace(config.network, distribution="noisy")


DEFINITION = Definition(_from_config, _network)
