"""PPO's loss on one minibatch of segments."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.ppo.batch import Batch, ExtraLoss, PPOState
from jaxrl.config import PPOConfig
from jaxrl.errors import UserError
from jaxrl.learning import losses
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, PyTree

# In the order of the vector that `loss` returns.
METRICS = (
    "train/loss",
    "train/policy_gradient_loss",
    "train/value_loss",
    "train/entropy_loss",
    "train/approx_kl",
    "train/clip_fraction",
    "train/std",
    "train/teacher_kl",
    "train/l2_init_loss",
    "train/extra_loss",
)


def loss(
    config: PPOConfig,
    networks: ActorCritic,
    params: PyTree,
    learner: PPOState,
    batch: Batch,
    coefs: dict[str, Array],
    extra_loss: ExtraLoss | None = None,
) -> tuple[Array, Array]:
    """Return the weighted sum of all losses, and METRICS as one vector."""
    hparams, dist = learner.hparams, networks.distribution
    out, value = forward(networks, params, batch)
    log_prob = dist.log_prob(out, batch.raw_action)
    policy_loss = losses.clipped_surrogate(
        log_prob, batch.log_prob, batch.advantage, hparams["clip"]
    )
    value_loss = _value_loss(config, hparams, value, batch)
    entropy = jnp.mean(dist.entropy(out, batch.noise))
    teacher_kl = jnp.mean(dist.kl(batch.teacher_output, out)) if config.teacher else jnp.zeros(())
    total = policy_loss + hparams["value_coef"] * value_loss - coefs["entropy_coef"] * entropy
    if config.bound_coef:
        total += hparams["bound_coef"] * losses.action_bound_loss(dist.mean_of_raw(out))
    l2_loss = jnp.zeros(())
    if config.l2_init_coef:
        l2_loss = losses.l2_to_initial(params, learner.initial_params)
        total += coefs["l2_init_coef"] * l2_loss
    if config.teacher:
        total += coefs["teacher_coef"] * teacher_kl
    extra = jnp.zeros(())
    if extra_loss:
        extra = _scalar(config, extra_loss(networks, params, batch, out, value))
        total += extra
    metrics = (
        total,
        policy_loss,
        value_loss,
        -entropy,
        losses.approx_kl(log_prob, batch.log_prob),
        losses.clip_fraction(log_prob, batch.log_prob, hparams["clip"]),
        jnp.mean(dist.std(out)),
        teacher_kl,
        l2_loss,
        extra,
    )
    # As one vector: separate metrics would add a kernel each to every gradient step.
    return total, jnp.stack([x.astype(jnp.float32) for x in metrics])


def forward(networks: ActorCritic, params: PyTree, batch: Batch) -> tuple[Array, Array]:
    """Return the actor's output and the critic's value, from the carry each segment began with."""
    carry = jax.tree.map(lambda leaf: leaf[0], batch.carry)
    return networks.forward(params, batch.obs, carry, batch.ended)


def _scalar(config: PPOConfig, value: Any) -> Array:
    """Return what a loss of the user's own returned, which must be a number."""
    if jnp.shape(value) != ():
        raise UserError(
            f"--ppo.extra-loss: '{config.extra_loss}' returned an array {jnp.shape(value)}: return "
            "a scalar, as jnp.mean does."
        )
    return jnp.asarray(value)


def _value_loss(config: PPOConfig, hparams: dict[str, Array], value: Array, batch: Batch) -> Array:
    if not config.value_clip:
        return losses.value_loss(value, batch.target)
    return losses.clipped_value_loss(value, batch.value, batch.target, hparams["value_clip"])


def coefficients(config: PPOConfig, hparams: dict[str, Array], progress: Array) -> dict[str, Array]:
    """Return the loss coefficients that change over a run, each linear down to a fraction."""
    final_fractions = {
        "entropy_coef": config.entropy_coef_end,
        "l2_init_coef": config.l2_init_coef_end,
        "teacher_coef": config.teacher_coef_end,
    }
    progress = jnp.clip(progress, 0.0, 1.0)
    return {
        name: hparams[name] * (1.0 - (1.0 - end) * progress)
        for name, end in final_fractions.items()
    }
