"""TD3: twin critics, a deterministic policy that is updated less often, and smoothed targets.

With `bc_alpha` the policy also stays close to the actions of the batch (TD3+BC), for recorded data.
References: Fujimoto et al., 2018; Fujimoto and Gu, 2021.
"""

import jax
import jax.numpy as jnp

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.off_policy.base import (
    HParams,
    OffPolicyAlgorithm,
    Params,
    TwinCritic,
    build_critics,
    noisy_network,
)
from jaxrl.config import OffPolicyConfig, TrainConfig
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.q_network import Critic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree


def make(config: OffPolicyConfig, networks: ActorCritic, critic: Critic) -> OffPolicyAlgorithm:
    """Compose TD3."""
    twin = TwinCritic(config, critic)

    def init(key: Key) -> Params:
        key_actor, key_critic = jax.random.split(key)
        return {"actor": networks.actor.init(key_actor), "critic": critic.init(key_critic)}

    def act(params: PyTree, obs: PyTree) -> Array:
        return networks.distribution.mode(networks.actor.apply(params, obs, ())[0])

    def losses(
        params: Params, target_params: Params, batch: Transition, key: Key, hparams: HParams
    ) -> tuple[Array, Metrics]:
        fixed = jax.lax.stop_gradient(params)
        next_action = act(target_params["actor"], batch.next_obs)
        noise = hparams["target_noise"] * jax.random.normal(key, next_action.shape)
        noise = jnp.clip(noise, -hparams["target_noise_clip"], hparams["target_noise_clip"])
        next_action = jnp.clip(next_action + noise, -1.0, 1.0)
        q_loss, metrics = twin.loss(
            params["critic"], target_params["critic"], batch, next_action, 0.0, hparams["gamma"]
        )
        action = act(params["actor"], batch.obs)
        # The first critic alone: which of the two is lower says nothing about which is steeper.
        critic = twin.with_stats(fixed["critic"], batch, next_action)
        q = twin.values(critic, batch.obs, action)[0]
        pi_loss = -jnp.mean(q)
        if config.bc_alpha:
            # Divided by their mean, Q values weigh the same against the actions in every task.
            scale = hparams["bc_alpha"] / (jnp.mean(jnp.abs(jax.lax.stop_gradient(q))) + 1e-6)
            bc_loss = jnp.mean(jnp.square(action - batch.action))
            metrics["train/bc_loss"] = Mean.of(bc_loss)
            pi_loss = scale * pi_loss + bc_loss
        metrics |= {"train/q_loss": Mean.of(q_loss), "train/pi_loss": Mean.of(pi_loss)}
        return q_loss + pi_loss, metrics

    return OffPolicyAlgorithm(
        init=init,
        losses=losses,
        actor="actor",
        targets=("actor", "critic"),
        rates={"actor": "pi_lr", "critic": "q_lr"},
        every={"actor": config.policy_delay or 2},
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OffPolicyAlgorithm:
    return make(config.offpolicy, networks, build_critics(config, spec))


DEFINITION = Definition(_from_config, noisy_network)
