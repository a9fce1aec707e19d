"""Deep Q-learning for choices: one network values them all, and acts by the highest.

Reference: Mnih et al., 2015; van Hasselt et al., 2016 (double).
"""

import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms.off_policy.base import Hyper, OffPolicyAlgorithm, Params
from jaxrl.config import OffPolicyConfig
from jaxrl.learning import td
from jaxrl.learning.replay_buffer import Transition
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, Key, Mean, Metrics, PyTree


def make(config: OffPolicyConfig, networks: ActorCritic) -> OffPolicyAlgorithm:
    """Compose DQN; its one network is the actor."""

    def values(params: PyTree, obs: PyTree) -> Array:
        return networks.actor.apply(params, obs, ())[0][..., :-1]  # the last is its randomness

    def losses(
        params: Params, target_params: Params, batch: Transition, key: Key, hparams: Hyper
    ) -> tuple[Array, Metrics]:
        del key
        following = values(target_params["critic"], batch.next_obs)
        judge = params["critic"] if config.double else target_params["critic"]
        choice = jnp.argmax(values(judge, batch.next_obs), axis=-1)
        then = jnp.take_along_axis(following, choice[:, None], axis=-1)[:, 0]
        goal = td.target(batch.reward, then, batch.terminated, gamma=hparams["gamma"])
        every = values(params["critic"], batch.obs)
        value = jnp.take_along_axis(every, batch.action[:, None], axis=-1)[:, 0]
        loss = jnp.mean(optax.huber_loss(value, jax.lax.stop_gradient(goal)))
        return loss, {"train/q_loss": Mean.of(loss), "train/q_mean": Mean.of(jnp.mean(value))}

    def exploring(progress: Array, params: PyTree) -> PyTree:
        # Without a share the end comes at once, but not before anything is learnt.
        share = config.epsilon_fraction
        done = jnp.minimum(progress / share, 1.0) if share else jnp.where(progress > 0, 1.0, 0.0)
        epsilon = jnp.asarray(1.0 + (config.epsilon_end - 1.0) * done, jnp.float32)
        return {"params": params["params"] | {"epsilon": epsilon}}

    return OffPolicyAlgorithm(
        init=lambda key: {"critic": networks.actor.init(key)},
        losses=losses,
        actor="critic",
        targets=("critic",),
        rates={"critic": "q_lr"},
        every={},
        exploring=exploring,
    )
