"""Soft actor-critic: twin critics, a stochastic policy, and a temperature α for target entropy.

With `cql_alpha` the critics also learn low values for actions that are not in the batch (CQL), for
recorded data. All networks take their step from the same, earlier parameters.
References: Haarnoja et al., 2018; Kumar et al., 2020.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.off_policy.base import (
    HParams,
    OffPolicyAlgorithm,
    Params,
    TwinCritic,
    build_critics,
)
from jaxrl.algorithms.policy import sample_action
from jaxrl.config import OffPolicyConfig, TrainConfig
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree

_CQL_SAMPLES = 10  # uniform actions, and as many of the policy


def make(
    config: OffPolicyConfig, networks: ActorCritic, critic: Critic, action_size: int
) -> OffPolicyAlgorithm:
    """Compose SAC."""

    def init(key: Key) -> Params:
        key_actor, key_critic = jax.random.split(key)
        log_alpha = jnp.log(jnp.asarray(config.alpha_init, jnp.float32))
        return {
            "actor": networks.actor.init(key_actor),
            "critic": critic.init(key_critic),
            "alpha": {"log": log_alpha},
        }

    return OffPolicyAlgorithm(
        init=init,
        losses=partial(_losses, TwinCritic(config, critic), networks, action_size),
        actor="actor",
        targets=("critic",),
        rates={"actor": "pi_lr", "critic": "q_lr", "alpha": "alpha_lr"},
        every=dict.fromkeys(("actor", "alpha"), config.policy_delay or 1),
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OffPolicyAlgorithm:
    return make(config.offpolicy, networks, build_critics(config, spec), spec.action.size)


DEFINITION = Definition(_from_config)


def _losses(
    twin: TwinCritic,
    networks: ActorCritic,
    action_size: int,
    params: Params,
    target_params: Params,
    batch: Transition,
    key: Key,
    hparams: HParams,
) -> tuple[Array, Metrics]:
    key_action, key_next = jax.random.split(key)
    fixed = jax.lax.stop_gradient(params)
    alpha = jnp.exp(fixed["alpha"]["log"])
    next_action, next_log_prob = sample_action(networks, fixed["actor"], batch.next_obs, key_next)
    bonus = -alpha * next_log_prob
    q_loss, metrics = twin.loss(
        params["critic"], target_params["critic"], batch, next_action, bonus, hparams["gamma"]
    )
    action, log_prob = sample_action(networks, params["actor"], batch.obs, key_action)
    q = twin.min_q(twin.with_stats(fixed["critic"], batch, next_action), batch.obs, action)
    pi_loss = jnp.mean(alpha * log_prob - q)
    target_entropy = action_size * hparams["target_entropy"]
    entropy_gap = jax.lax.stop_gradient(-jnp.mean(log_prob)) - target_entropy
    metrics |= {
        "train/q_loss": Mean.of(q_loss),
        "train/pi_loss": Mean.of(pi_loss),
        "train/entropy": Mean.of(-jnp.mean(log_prob)),
        "train/alpha": Mean.of(alpha),
    }
    if twin.config.cql_alpha:
        key_gap = jax.random.fold_in(key, 2)
        critic = twin.with_stats(params["critic"], batch, next_action)
        gap = _conservative_gap(twin, networks, critic, fixed["actor"], batch, key_gap)
        metrics["train/cql_loss"] = Mean.of(gap)
        q_loss += hparams["cql_alpha"] * gap
    return q_loss + pi_loss + params["alpha"]["log"] * entropy_gap, metrics


def _conservative_gap(
    twin: TwinCritic,
    networks: ActorCritic,
    critic: PyTree,
    actor: PyTree,
    batch: Transition,
    key: Key,
) -> Array:
    """Return log ∫ exp Q(s, a) da − Q(s, a of the batch), summed over both critics.

    The integral is estimated from uniform actions and from the policy's, by importance sampling.
    """
    key_uniform, key_policy = jax.random.split(key)
    shape = (_CQL_SAMPLES, *batch.action.shape)
    uniform = jax.random.uniform(key_uniform, shape, minval=-1.0, maxval=1.0)
    density = jnp.full(shape[:2], -shape[-1] * math.log(2.0))
    keys = jax.random.split(key_policy, _CQL_SAMPLES)
    acted, log_prob = jax.vmap(lambda k: sample_action(networks, actor, batch.obs, k))(keys)
    actions = jnp.concatenate([uniform, jax.lax.stop_gradient(acted)])
    log_probs = jnp.concatenate([density, log_prob])
    q = jax.vmap(lambda action: twin.values(critic, batch.obs, action))(actions)  # [K, 2, B]
    integral = jax.nn.logsumexp(q - log_probs[:, None], axis=0) - math.log(len(actions))
    return jnp.sum(jnp.mean(integral - twin.values(critic, batch.obs, batch.action), axis=1))
