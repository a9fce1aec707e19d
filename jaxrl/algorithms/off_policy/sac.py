"""Soft actor-critic: twin critics, a stochastic policy, and a temperature α for target entropy.

Reference: Haarnoja et al., 2018. All networks take their step from the same, earlier parameters.
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.algorithms.off_policy.base import HParams, OffPolicyAlgorithm, Params, TwinCritic
from jaxrl.config import OffPolicyConfig
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, Key, Mean, Metrics, PyTree


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
    )


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
    next_action, next_log_prob = _act(networks, fixed["actor"], batch.next_obs, key_next)
    bonus = -alpha * next_log_prob
    q_loss, metrics = twin.loss(
        params["critic"], target_params["critic"], batch, next_action, bonus, hparams["gamma"]
    )
    action, log_prob = _act(networks, params["actor"], batch.obs, key_action)
    q = twin.min_q(fixed["critic"], batch.obs, action)
    pi_loss = jnp.mean(alpha * log_prob - q)
    target_entropy = action_size * hparams["target_entropy"]
    entropy_gap = jax.lax.stop_gradient(-jnp.mean(log_prob)) - target_entropy
    metrics |= {
        "train/q_loss": Mean.of(q_loss),
        "train/pi_loss": Mean.of(pi_loss),
        "train/entropy": Mean.of(-jnp.mean(log_prob)),
        "train/alpha": Mean.of(alpha),
    }
    return q_loss + pi_loss + params["alpha"]["log"] * entropy_gap, metrics


def _act(networks: ActorCritic, params: PyTree, obs: PyTree, key: Key) -> tuple[Array, Array]:
    """Return sampled actions and their log-probabilities."""
    out, _ = networks.actor.apply(params, obs, ())
    raw = networks.distribution.sample(out, key)
    return networks.distribution.to_env(raw), networks.distribution.log_prob(out, raw)
