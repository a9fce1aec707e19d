"""Soft actor-critic: twin critics, a random policy, and an entropy that is aimed at.

Reference: Haarnoja et al., 2018. All networks take their step from the same, earlier parameters.
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxrl.algorithms.off_policy.base import Hyper, OffPolicyAlgorithm, Params, TwinCritic
from jaxrl.config import OffPolicyConfig
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, Key, Mean, Metrics, PyTree


def make(
    config: OffPolicyConfig, networks: ActorCritic, critic: Critic, actions: int
) -> OffPolicyAlgorithm:
    """Compose SAC for actions of so many numbers."""

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
        losses=partial(_losses, TwinCritic(config, critic), networks, actions),
        actor="actor",
        targets=("critic",),
        rates={"actor": "pi_lr", "critic": "q_lr", "alpha": "alpha_lr"},
        every={},
    )


def _act(networks: ActorCritic, params: PyTree, obs: PyTree, key: Key) -> tuple[Array, Array]:
    """Return random actions and their log-probabilities."""
    out, _ = networks.actor.apply(params, obs, ())
    raw = networks.distribution.sample(out, key)
    return networks.distribution.to_env(raw), networks.distribution.log_prob(out, raw)


def _losses(
    value: TwinCritic,
    networks: ActorCritic,
    actions: int,
    params: Params,
    target_params: Params,
    batch: Transition,
    key: Key,
    hparams: Hyper,
) -> tuple[Array, Metrics]:
    now, then = jax.random.split(key)
    fixed = jax.lax.stop_gradient(params)
    alpha = jnp.exp(fixed["alpha"]["log"])
    next_action, next_log_prob = _act(networks, fixed["actor"], batch.next_obs, then)
    bonus = -alpha * next_log_prob
    q_loss, noted = value.loss(
        params["critic"], target_params["critic"], batch, next_action, bonus, hparams["gamma"]
    )
    action, log_prob = _act(networks, params["actor"], batch.obs, now)
    worth = value.believed(fixed["critic"], batch.obs, action)
    pi_loss = jnp.mean(alpha * log_prob - worth)
    surplus = jax.lax.stop_gradient(-jnp.mean(log_prob)) - actions * hparams["target_entropy"]
    noted |= {
        "train/q_loss": Mean.of(q_loss),
        "train/pi_loss": Mean.of(pi_loss),
        "train/entropy": Mean.of(-jnp.mean(log_prob)),
        "train/alpha": Mean.of(alpha),
    }
    return q_loss + pi_loss + params["alpha"]["log"] * surplus, noted
