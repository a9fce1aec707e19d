"""PPO's gradient steps: update epochs × minibatches over one judged rollout."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.ppo_batch import Batch, PPOState, standardize
from jaxrl.config import PPOConfig
from jaxrl.learning import losses, minibatch, optimizer, schedules
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, Key, Mean, Metrics, PyTree

METRICS = (
    "train/loss",
    "train/policy_gradient_loss",
    "train/value_loss",
    "train/entropy_loss",
    "train/approx_kl",
    "train/clip_fraction",
    "train/std",
    "train/grad_norm",
    "train/stopped_by_kl",
    "train/bad_updates",
)


@dataclass(frozen=True)
class Updater:
    """How a judged rollout changes the learner; every method is a pure function."""

    config: PPOConfig
    networks: ActorCritic
    num_rows: int
    blocks: int

    @property
    def transform(self) -> optax.GradientTransformation:
        """The optimiser, without a learning rate: that is traced."""
        return optimizer.adam(self.config.max_grad_norm, self.config.adam_epsilon)

    def improve(self, learner: PPOState, batch: Batch, key: Key) -> tuple[PPOState, Metrics]:
        """Take update epochs × minibatches gradient steps."""
        c = self.config
        # One long vector instead of many small arrays: an optimiser step is then a few kernels.
        flat, unravel = ravel_pytree(learner.params)

        def epoch(carry, key: Key):
            key_rows, key_loss = jax.random.split(key)
            rows = minibatch.shuffled_rows(key_rows, self.num_rows, c.num_minibatches, self.blocks)
            keys = jax.random.split(key_loss, c.num_minibatches)
            parts = minibatch.deal(batch, rows)
            return jax.lax.scan(partial(self._update, unravel), carry, (parts, keys))

        start = (learner.replace(params=flat), jnp.ones((), bool), jnp.zeros((), bool))
        keys = jax.random.split(key, c.update_epochs)
        (learner, _, _), metrics = jax.lax.scan(epoch, start, keys)
        learner = learner.replace(params=unravel(learner.params))
        means = jnp.mean(metrics, axis=(0, 1))
        return learner, {name: Mean.of(means[i]) for i, name in enumerate(METRICS)}

    def _update(self, unravel: Callable[[Array], PyTree], carry: Any, inputs: tuple[Batch, Key]):
        """Take one gradient step on one minibatch; parameters are one vector here."""
        learner, first, stopped = carry
        part, key = inputs
        hyper = learner.hyper
        if self.config.normalize_advantage == "minibatch":
            part = part._replace(advantage=standardize(part.advantage))

        def loss(flat: Array):
            return self._loss(unravel(flat), learner=learner, batch=part, key=key)

        grads, metrics = jax.grad(loss, has_aux=True)(learner.params)
        kl = metrics["train/approx_kl"]
        stopped = stopped | ((hyper["target_kl"] > 0) & (kl > 1.5 * hyper["target_kl"]))
        step = optimizer.step(
            self.transform,
            learner.params,
            learner.optimizer,
            grads,
            learning_rate=learner.learning_rate,
            allowed=~stopped,
        )
        metrics |= {"train/grad_norm": step.grad_norm, "train/stopped_by_kl": stopped}
        metrics["train/bad_updates"] = ~step.finite
        learner = learner.replace(
            params=step.params,
            optimizer=step.opt_state,
            skipped=learner.skipped + ~step.finite,
            bad_streak=jnp.where(step.finite, 0, learner.bad_streak + 1),
        )
        if self.config.schedule == "adaptive_kl":
            # KL says nothing while the policy stands still: before the first step, or stopped.
            rate = jnp.where(first | stopped, learner.learning_rate, _followed(learner, kl))
            learner = learner.replace(learning_rate=rate)
        # As one vector: each metric on its own would be a kernel more in every gradient step.
        noted = jnp.stack([metrics[name].astype(jnp.float32) for name in METRICS])
        return (learner, jnp.zeros((), bool), stopped), noted

    def _loss(self, params: PyTree, *, learner: PPOState, batch: Batch, key: Key):
        """Sum the weighted losses of one minibatch."""
        c, hyper, dist = self.config, learner.hyper, self.networks.distribution
        carry = jax.tree.map(lambda leaf: leaf[0], batch.carry)
        out, value = self.networks.both(params, batch.obs, carry, batch.ended)
        log_prob = dist.log_prob(out, batch.raw_action)
        policy_loss = losses.clipped_surrogate(
            log_prob, batch.log_prob, batch.advantage, hyper["clip"]
        )
        if c.value_clip:
            value_loss = losses.clipped_value_loss(
                value, batch.value, batch.target, hyper["value_clip"]
            )
        else:
            value_loss = losses.value_loss(value, batch.target)
        entropy = jnp.mean(dist.entropy(out, key))
        total = policy_loss + hyper["value_coef"] * value_loss - hyper["entropy_coef"] * entropy
        if c.bound_coef:
            total += hyper["bound_coef"] * losses.action_bound_loss(dist.mean_of_raw(out))
        if c.l2_init_coef:
            total += hyper["l2_init_coef"] * losses.l2_to_initial(params, learner.initial_params)
        return total, {
            "train/loss": total,
            "train/policy_gradient_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/entropy_loss": -entropy,
            "train/approx_kl": losses.approx_kl(log_prob, batch.log_prob),
            "train/clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, hyper["clip"]),
            "train/std": jnp.mean(dist.std(out)),
        }


def _followed(learner: PPOState, kl: Array) -> Array:
    """Return the learning rate that keeps KL near what is desired."""
    hyper = learner.hyper
    bounds = hyper["min_learning_rate"], hyper["max_learning_rate"]
    return schedules.adapt_to_kl(learner.learning_rate, kl, hyper["desired_kl"], *bounds)
