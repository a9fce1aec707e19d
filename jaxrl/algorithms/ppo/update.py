"""PPO's gradient steps: update epochs × minibatches over one judged rollout."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.ppo import loss as ppo_loss
from jaxrl.algorithms.ppo.batch import Batch, PPOState, standardize
from jaxrl.algorithms.ppo.loss import METRICS
from jaxrl.algorithms.ppo.sampler import Sampler
from jaxrl.config import PPOConfig
from jaxrl.learning import minibatch, optimizer, schedules
from jaxrl.networks.actor_critic import ActorCritic
from jaxrl.types import Array, Key, Mean, Metrics, PyTree

STEP_METRICS = ("train/grad_norm", "train/stopped_by_kl", "train/bad_updates")
_KL = METRICS.index("train/approx_kl")
Unravel = Callable[[Array], PyTree]


@dataclass(frozen=True)
class Updater:
    """How a judged rollout changes the learner; every method is a pure function."""

    config: PPOConfig
    networks: ActorCritic
    num_rows: int
    num_shards: int

    def transform(self, unravel: Unravel) -> optax.GradientTransformation:
        """Return the optimiser of a vector of parameters, without a learning rate: it is traced."""
        c = self.config
        if c.optimizer == "muon":
            return optimizer.muon(c.max_grad_norm, c.adam_epsilon, unravel)
        return optimizer.adam(c.max_grad_norm, c.adam_epsilon)

    def improve(
        self, learner: PPOState, batch: Batch, key: Key, progress: Array
    ) -> tuple[PPOState, Metrics]:
        """Take update epochs × minibatches gradient steps, `progress` of the run being over."""
        c = self.config
        # One long vector instead of many small arrays: an optimiser step is then a few kernels.
        flat, unravel = ravel_pytree(learner.params)
        weights = ppo_loss.coefficients(c, learner.hparams, progress)
        update = partial(self._update, unravel, weights)
        sampler = Sampler(c, self.networks, self.num_rows, self.num_shards)

        def visit(carry: tuple, inputs: tuple[Array, Key]):
            (learner, *rest), live = carry
            params = unravel(learner.params)
            part, live = sampler.draw(learner, params, batch, live, inputs[0], progress)
            state, noted = update((learner, *rest), (part, inputs[1]))
            return (state, live), noted

        def epoch(carry: tuple, inputs: tuple[Array, Key]):
            planned, keys = inputs
            if sampler.is_fixed:
                # Nothing that a gradient step changes is read by the next minibatch.
                parts = minibatch.deal(batch, planned)
                state, noted = jax.lax.scan(update, carry[0], (parts, keys))
                return (state, carry[1]), noted
            return jax.lax.scan(visit, carry, (planned, keys))

        start = (learner.replace(params=flat), jnp.ones((), bool), jnp.zeros((), bool))
        keys = jax.random.split(key, (c.update_epochs, 1 + c.num_minibatches))
        # All passes are dealt at once: that is one sort instead of one for each.
        inputs = (jax.vmap(sampler.plan)(keys[:, 0]), keys[:, 1:])
        (state, _), metrics = jax.lax.scan(epoch, (start, sampler.live(batch)), inputs)
        learner = state[0].replace(params=unravel(state[0].params))
        means = jnp.mean(metrics, axis=(0, 1))
        noted = {name: Mean.of(means[i]) for i, name in enumerate(METRICS + STEP_METRICS)}
        if not c.teacher:
            del noted["train/teacher_kl"]
        return learner, noted

    def _update(
        self,
        unravel: Unravel,
        weights: dict[str, Array],
        carry: Any,
        inputs: tuple[Batch, Key],
    ):
        """Take one gradient step on one minibatch; parameters are one vector here."""
        learner, first, stopped = carry
        part, key = inputs
        hparams = learner.hparams
        if self.config.normalize_advantage == "minibatch":
            part = part._replace(advantage=standardize(part.advantage))
        if self.config.sampling == "prioritized":
            part = part._replace(advantage=part.advantage * part.weight)
        if size := self.networks.distribution.noise_size:
            part = part._replace(noise=jax.random.normal(key, (*part.log_prob.shape, size)))
        grads, noted = self._gradients(unravel, weights, learner, part)
        kl = noted[_KL]
        stopped = stopped | ((hparams["target_kl"] > 0) & (kl > 1.5 * hparams["target_kl"]))
        step = optimizer.step(
            self.transform(unravel),
            learner.params,
            learner.optimizer,
            grads,
            learning_rate=learner.learning_rate,
            allowed=~stopped,
        )
        learner = learner.replace(
            params=step.params,
            optimizer=step.opt_state,
            skipped_updates=learner.skipped_updates + ~step.finite,
            nonfinite_streak=jnp.where(step.finite, 0, learner.nonfinite_streak + 1),
        )
        if self.config.schedule == "adaptive_kl":
            # KL says nothing while the policy stands still: before the first step, or stopped.
            rate = jnp.where(first | stopped, learner.learning_rate, _followed(learner, kl))
            learner = learner.replace(learning_rate=rate)
        about_step = jnp.stack([step.grad_norm, stopped * 1.0, ~step.finite * 1.0])
        return (learner, jnp.zeros((), bool), stopped), jnp.concatenate([noted, about_step])

    def _gradients(
        self,
        unravel: Unravel,
        weights: dict[str, Array],
        learner: PPOState,
        part: Batch,
    ) -> tuple[Array, Array]:
        """Return the gradient and METRICS of a minibatch, taken whole or in equal parts."""

        def loss(flat: Array, part: Batch) -> tuple[Array, Array]:
            params = unravel(flat)
            return ppo_loss.loss(self.config, self.networks, params, learner, part, weights)

        slope, pieces = jax.grad(loss, has_aux=True), self.config.accumulate
        if pieces == 1:
            return slope(learner.params, part)
        rows = self.num_rows // self.config.num_minibatches
        order = jnp.arange(rows // self.num_shards).reshape(pieces, 1, -1)
        order = jnp.broadcast_to(order, (pieces, self.num_shards, order.shape[-1]))

        def add(total: tuple[Array, Array], piece: Batch):
            return jax.tree.map(jnp.add, total, slope(learner.params, piece)), None

        # Every loss is a mean, so the mean over equal pieces is that of the whole.
        nothing = (jnp.zeros_like(learner.params), jnp.zeros(len(METRICS)))
        total, _ = jax.lax.scan(add, nothing, minibatch.deal(part, order))
        return jax.tree.map(lambda x: x / pieces, total)


def _followed(learner: PPOState, kl: Array) -> Array:
    """Return the learning rate that keeps KL near what is desired."""
    hparams = learner.hparams
    bounds = hparams["min_learning_rate"], hparams["max_learning_rate"]
    return schedules.adapt_to_kl(learner.learning_rate, kl, hparams["desired_kl"], *bounds)
