"""Relative entropy pathwise policy optimisation (REPPO): an actor that follows the gradient of Q.

Two learnt multipliers keep it exploring and close to the policy that acted: α of the entropy, β of
the KL divergence. The critic predicts a distribution over values, and is as good as its λ-returns,
so there is no target network, and no clipping of ratios.
Reference: Voelcker et al., 2025.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.algorithms.definition import Definition
from jaxrl.algorithms.on_policy.base import HParams, OnPolicyAlgorithm, Params
from jaxrl.algorithms.policy import sample_action
from jaxrl.config import REPPOConfig, TrainConfig
from jaxrl.learning import losses, td
from jaxrl.learning.gae import lambda_returns
from jaxrl.networks import embedding_critic
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.networks.embedding_critic import EmbeddingCritic
from jaxrl.types import Array, EnvSpec, Key, Mean, Metrics, PyTree, Rollout


@dataclass(frozen=True)
class REPPO:
    """What REPPO is composed of. Parameters: "actor", "critic", and "duals", log α and log β."""

    config: REPPOConfig
    networks: ActorCritic  # of which the actor is used
    critic: EmbeddingCritic

    @property
    def atoms(self) -> Array:
        """The support of the critic's distributions."""
        return td.support(*self.config.support)


class Batch(NamedTuple):
    """What one gradient step reads: single steps, [1, rows, ...]."""

    obs: PyTree  # normalised
    action: Array
    reward: Array  # scaled
    target: Array  # soft λ-return of the action
    next_embedding: Array  # of the true successor and an action of the policy
    old_output: Array  # the actor's output before the first gradient step


def init_params(reppo: REPPO, key: Key) -> Params:
    """Return the parameters of all networks before the first gradient step."""
    key_actor, key_critic = jax.random.split(key)
    start = {"log_alpha": reppo.config.alpha_init, "log_beta": reppo.config.beta_init}
    return {
        "actor": reppo.networks.actor.init(key_actor),
        "critic": reppo.critic.init(key_critic),
        "duals": {n: jnp.log(jnp.asarray(value, jnp.float32)) for n, value in start.items()},
    }


def make_batch(reppo: REPPO, params: Params, hparams: HParams, steps: Rollout, key: Key) -> Batch:
    """Compute soft rewards and their λ-returns.

    The soft reward of a step has the entropy of the action after it, −α log π(a'|s'), discounted
    like the value Q(s', a') that it belongs to. A terminated step has neither.
    """
    next_action, next_log_prob = sample_action(reppo.networks, params["actor"], steps.next_obs, key)
    next_output = reppo.critic.apply(params["critic"], steps.next_obs, next_action)
    bonus = -jnp.exp(params["duals"]["log_alpha"]) * next_log_prob
    target = lambda_returns(
        td.target(steps.reward, bonus, steps.terminated, gamma=hparams["gamma"]),
        td.expected(next_output.logits, reppo.atoms),
        steps.terminated,
        steps.truncated,
        gamma=hparams["gamma"],
        lam=hparams["lam"],
    )
    old_output, _ = reppo.networks.actor.apply(params["actor"], steps.obs, ())
    embedding = next_output.embedding
    return Batch(steps.obs, steps.action, steps.reward, target, embedding, old_output)


def loss(
    reppo: REPPO, params: Params, hparams: HParams, batch: Batch, key: Key
) -> tuple[Array, Metrics]:
    """Return the sum of all losses, each of which reaches only the network it trains."""
    critic_loss, critic_metrics = _critic_loss(reppo, params, hparams, batch)
    actor_loss, actor_metrics = _actor_loss(reppo, params, hparams, batch, key)
    return critic_loss + actor_loss, critic_metrics | actor_metrics


def _critic_loss(
    reppo: REPPO, params: Params, hparams: HParams, batch: Batch
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
    reppo: REPPO, params: Params, hparams: HParams, batch: Batch, key: Key
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


def make(config: REPPOConfig, networks: ActorCritic, critic: EmbeddingCritic) -> OnPolicyAlgorithm:
    """Compose REPPO."""
    reppo = REPPO(config, networks, critic)
    return OnPolicyAlgorithm(
        init=partial(init_params, reppo),
        make_batch=partial(make_batch, reppo),
        loss=partial(loss, reppo),
        actor="actor",
    )


def _from_config(config: TrainConfig, spec: EnvSpec, networks: ActorCritic) -> OnPolicyAlgorithm:
    critic = embedding_critic.build(spec, config.network, config.reppo.support)
    return make(config.reppo, networks, critic)


DEFINITION = Definition(_from_config)
