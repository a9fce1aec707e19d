"""Behaviour cloning: supervised learning of recorded actions, whatever their rewards."""

import jax.numpy as jnp

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.off_policy.base import (
    HParams,
    OffPolicyAlgorithm,
    Params,
    noisy_network,
)
from jaxrl.config import TrainConfig
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics


def make(networks: ActorCritic, *, discrete: bool) -> OffPolicyAlgorithm:
    """Compose behaviour cloning: squared errors, or cross-entropy for discrete actions."""
    dist = networks.distribution

    def losses(
        params: Params, target_params: Params, batch: Transition, key: Key, hparams: HParams
    ) -> tuple[Array, Metrics]:
        del target_params, key, hparams
        out, _ = networks.actor.apply(params["actor"], batch.obs, ())
        if discrete:
            loss = -jnp.mean(dist.log_prob(out, batch.action))
        else:
            loss = jnp.mean(jnp.square(dist.mode(out) - batch.action))
        return loss, {"train/bc_loss": Mean.of(loss)}

    return OffPolicyAlgorithm(
        init=lambda key: {"actor": networks.actor.init(key)},
        losses=losses,
        actor="actor",
        targets=(),
        rates={"actor": "pi_lr"},
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OffPolicyAlgorithm:
    del config
    return make(networks, discrete=spec.action.discrete)


DEFINITION = Definition(_from_config, noisy_network)
