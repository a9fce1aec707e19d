"""REPPO's losses on one minibatch: critic, actor, and the multipliers α and β."""

import jax
import jax.numpy as jnp

from jaxrl.algorithms.reppo.batch import REPPO, Batch, Params
from jaxrl.learning import losses, td
from jaxrl.types import Array, Key, Mean, Metrics


def loss(
    reppo: REPPO, params: Params, hparams: dict[str, Array], batch: Batch, key: Key
) -> tuple[Array, Metrics]:
    """Return the sum of all losses, each of which reaches only the network it trains."""
    critic_loss, critic_metrics = _critic_loss(reppo, params, hparams, batch)
    actor_loss, actor_metrics = _actor_loss(reppo, params, hparams, batch, key)
    return critic_loss + actor_loss, critic_metrics | actor_metrics


def _critic_loss(
    reppo: REPPO, params: Params, hparams: dict[str, Array], batch: Batch
) -> tuple[Array, Metrics]:
    """Return the distance from the λ-returns, plus the errors of the predictions."""
    out, atoms = reppo.critic.apply(params["critic"], batch.obs, batch.action), reppo.atoms
    q = td.expected(out.logits, atoms)
    if reppo.config.critic_loss == "hl_gauss":
        q_loss = jnp.mean(td.cross_entropy(out.logits, td.hl_gauss(batch.target, atoms)))
    else:
        q_loss = losses.value_loss(q, batch.target)
    # No step is masked: its successor is the true one, also where the episode ended.
    errors = (out.next_embedding - batch.next_embedding, (out.reward - batch.reward)[..., None])
    aux_loss = jnp.mean(jnp.square(jnp.concatenate(errors, axis=-1)))
    outside = (batch.target < atoms[0]) | (batch.target > atoms[-1])
    metrics = {
        "train/q_loss": q_loss,
        "train/aux_loss": aux_loss,
        "train/q_mean": jnp.mean(q),
        "train/clipped_targets": jnp.mean(outside),
        "train/explained_variance": losses.explained_variance(q, batch.target),
    }
    return q_loss + hparams["aux_coef"] * aux_loss, _means(metrics)


def _actor_loss(
    reppo: REPPO, params: Params, hparams: dict[str, Array], batch: Batch, key: Key
) -> tuple[Array, Metrics]:
    """Return the losses of the actor and of the multipliers.

    Of each step the actor maximises Q(s, a) − α log π(a|s) while the policy is near the one that
    acted, and otherwise returns to it. KL(old ‖ new) is that of the normals before tanh, which is
    the same, and exact; the authors estimate it from 16 actions.
    """
    dist, fixed = reppo.networks.distribution, jax.lax.stop_gradient(params)
    out, _ = reppo.networks.actor.apply(params["actor"], batch.obs, ())
    raw = dist.sample(out, key)
    log_prob, kl = dist.log_prob(out, raw), dist.kl(batch.old_output, out)
    q = td.expected(
        reppo.critic.apply(fixed["critic"], batch.obs, dist.to_env(raw)).logits, reppo.atoms
    )
    per_step = constrained_loss(
        jnp.exp(fixed["duals"]["log_alpha"]) * log_prob - q,
        kl,
        jnp.exp(fixed["duals"]["log_beta"]),
        hparams["kl_bound"],
    )
    alpha, beta = (jnp.exp(params["duals"][name]) for name in ("log_alpha", "log_beta"))
    entropy, mean_kl = (jnp.mean(jax.lax.stop_gradient(x)) for x in (-log_prob, kl))
    target_entropy = hparams["target_entropy"] * raw.shape[-1]
    dual_loss = alpha * (entropy - target_entropy) - beta * (mean_kl - hparams["kl_bound"])
    metrics = {
        "train/pi_loss": jnp.mean(per_step),
        "train/entropy": entropy,
        "train/approx_kl": mean_kl,
        "train/kl_violations": jnp.mean(kl >= hparams["kl_bound"]),
        "train/std": jnp.mean(dist.std(out)),
        "train/alpha": alpha,
        "train/beta": beta,
    }
    return jnp.mean(per_step) + dual_loss, _means(metrics)


def constrained_loss(loss: Array, kl: Array, beta: Array, bound: Array | float) -> Array:
    """Return the loss of steps whose KL is below the bound, and β KL of the others."""
    return jnp.where(kl < bound, loss, beta * kl)


def _means(metrics: dict[str, Array]) -> Metrics:
    return {name: Mean.of(value) for name, value in metrics.items()}
