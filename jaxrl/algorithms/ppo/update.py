"""PPO's gradient steps: update epochs × minibatches over one batch.

    update -> epochs -> sample a minibatch -> gradient step -> loss

Minibatches of segments are sampled in one of three ways:

    sequential    every segment exactly once per epoch, in random order
    uniform       each minibatch is an independent sample
    prioritized   likewise, segments with large advantages more often, with importance weights

With V-trace the advantages of a minibatch are recomputed for the current policy. The values and
probability ratios computed for it are cached, for priorities and for later minibatches. Steps of
other segments, which an advantage reaches into, use their cached ratios.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from jaxrl.algorithms.ppo import loss as ppo_loss
from jaxrl.algorithms.ppo.batch import PPO, Batch, PPOState, VTraceInputs, standardize, value_scale
from jaxrl.algorithms.ppo.loss import METRICS
from jaxrl.config import PPOConfig
from jaxrl.learning import minibatch, optimizer, prioritized_sampling, schedules, segments
from jaxrl.learning.gae import gae
from jaxrl.types import Array, Key, Mean, Metrics, PyTree

STEP_METRICS = ("train/grad_norm", "train/stopped_by_kl", "train/nonfinite_updates")
_KL = METRICS.index("train/approx_kl")
Unravel = Callable[[Array], PyTree]


class VTraceCache(NamedTuple):
    """Values and ratios of all segments, as last computed, [T, rows]."""

    value: Array
    ratio: Array  # π_now / π_old


class UpdateState(NamedTuple):
    """What one gradient step passes to the next."""

    learner: PPOState
    is_first: Array  # bool: no gradient step was taken in this iteration yet
    stopped: Array  # bool: KL has passed its limit; the remaining steps are skipped
    cache: Any = ()  # VTraceCache, or () for GAE


def make_optimizer(config: PPOConfig, unravel: Unravel) -> optax.GradientTransformation:
    """Return the optimiser of a parameter vector, without a learning rate: that is traced."""
    if config.optimizer == "muon":
        return optimizer.muon(config.max_grad_norm, config.adam_epsilon, unravel)
    return optimizer.adam(config.max_grad_norm, config.adam_epsilon)


def update(
    ppo: PPO, learner: PPOState, batch: Batch, key: Key, progress: Array
) -> tuple[PPOState, Metrics]:
    """Take update epochs × minibatches gradient steps; `progress` is the fraction of the run."""
    c = ppo.config
    # One long vector instead of many small arrays: an optimiser step is then a few kernels.
    flat, unravel = ravel_pytree(learner.params)
    coefs = ppo_loss.coefficients(c, learner.hparams, progress)
    step = partial(gradient_step, ppo, unravel, coefs)

    def sample_and_step(state: UpdateState, inputs: tuple[Array, Key]):
        plan, key = inputs
        params = unravel(state.learner.params)
        part, cache = sample(ppo, state.learner, params, batch, state.cache, plan, progress)
        return step(state._replace(cache=cache), (standardized(c, part), key))

    def epoch(state: UpdateState, inputs: tuple[Array, Key]):
        plan, keys = inputs
        if is_fixed(c):
            # Statistics of all minibatches at once: devices then meet once per gradient step.
            parts = jax.vmap(partial(standardized, c))(minibatch.gather_minibatches(batch, plan))
            return jax.lax.scan(step, state, (parts, keys))
        return jax.lax.scan(sample_and_step, state, (plan, keys))

    learner = learner.replace(params=flat)
    start = UpdateState(learner, jnp.ones((), bool), jnp.zeros((), bool), init_cache(c, batch))
    keys = jax.random.split(key, (c.update_epochs, 1 + c.num_minibatches))
    # All epochs are planned at once: that is one sort instead of one for each.
    inputs = (jax.vmap(partial(plan_epoch, ppo, batch))(keys[:, 0]), keys[:, 1:])
    end, metrics = jax.lax.scan(epoch, start, inputs)
    learner = end.learner.replace(params=unravel(end.learner.params))
    means = jnp.mean(metrics, axis=(0, 1))
    named = {name: Mean.of(means[i]) for i, name in enumerate(METRICS + STEP_METRICS)}
    if not c.teacher:
        del named["train/teacher_kl"]
    if not c.l2_init_coef:
        del named["train/l2_init_loss"]
    if not ppo.extra_loss:
        del named["train/extra_loss"]
    return learner, named


def standardized(config: PPOConfig, part: Batch) -> Batch:
    """Return a minibatch with the advantages that its gradient step uses."""
    if config.normalize_advantage != "minibatch":
        return part
    advantage = standardize(part.advantage, config.advantage_floor)
    return part._replace(advantage=advantage)


def is_fixed(config: PPOConfig) -> bool:
    """Return whether an epoch's minibatches do not depend on its gradient steps."""
    return config.sampling == "sequential" and config.advantage == "gae"


def plan_epoch(ppo: PPO, batch: Batch, key: Key) -> Array:
    """Return the rows of each minibatch of an epoch, or a key for each to sample rows with."""
    number = ppo.config.num_minibatches
    if ppo.config.sampling == "sequential":
        return minibatch.shuffled_rows(key, _num_rows(batch), number, ppo.num_shards)
    return jax.random.split(key, number)


def sample(
    ppo: PPO,
    learner: PPOState,
    params: PyTree,
    batch: Batch,
    cache: Any,
    plan: Array,
    progress: Array,
) -> tuple[Batch, Any]:
    """Return the next minibatch, and the V-trace cache after it."""
    if ppo.config.sampling == "sequential":
        rows, weight = plan, ()
    else:
        rows, weight = sample_rows(ppo, learner, batch, cache, plan, progress)
    part = minibatch.gather_rows(batch, rows)._replace(weight=weight)
    if ppo.config.advantage == "gae":
        return part, cache
    now = vtrace_values(ppo, params, part)
    cache = cache._replace(ratio=minibatch.scatter_rows(cache.ratio, rows, now.ratio))
    advantage = minibatch.gather_rows(vtrace_advantages(ppo.config, learner, batch, cache), rows)
    cache = cache._replace(value=minibatch.scatter_rows(cache.value, rows, now.value))
    return part._replace(advantage=advantage), cache


def sample_rows(
    ppo: PPO, learner: PPOState, batch: Batch, cache: Any, key: Key, progress: Array
) -> tuple[Array, Any]:
    """Sample rows [shards, R] and their importance weights [1, shards · R]."""
    num_rows, num_shards = _num_rows(batch), ppo.num_shards
    number = num_rows // (num_shards * ppo.config.num_minibatches)
    keys = jax.random.split(key, num_shards)
    if ppo.config.sampling == "uniform":
        probs = jnp.full((num_shards, num_rows // num_shards), 1.0)
        return prioritized_sampling.sample_rows(keys, probs / probs.shape[1], number), ()
    advantage = batch.advantage
    if cache != ():
        advantage = vtrace_advantages(ppo.config, learner, batch, cache)
    alpha, beta0 = learner.hparams["prio_alpha"], learner.hparams["prio_beta0"]
    probs = prioritized_sampling.priorities(
        advantage.reshape(len(advantage), num_shards, -1), alpha
    )
    rows = prioritized_sampling.sample_rows(keys, probs, number)
    weight = prioritized_sampling.importance(
        probs, rows, prioritized_sampling.beta(beta0, alpha, progress)
    )
    return rows, weight.reshape(1, -1)


def init_cache(config: PPOConfig, batch: Batch) -> Any:
    """Return the V-trace cache before the first gradient step; () for GAE."""
    if config.advantage == "gae":
        return ()
    return VTraceCache(batch.value, jnp.ones_like(batch.value))


def vtrace_values(ppo: PPO, params: PyTree, part: Batch) -> VTraceCache:
    """Return the values and ratios of a minibatch for the current parameters."""
    out, value = ppo_loss.forward(ppo.networks, params, part)
    log_prob = ppo.networks.distribution.log_prob(out, part.raw_action)
    ratio = jnp.exp(jnp.clip(log_prob - part.log_prob, -20.0, 20.0))
    return jax.lax.stop_gradient(VTraceCache(value, ratio))


def vtrace_advantages(
    config: PPOConfig, learner: PPOState, batch: Batch, cache: VTraceCache
) -> Array:
    """Return the advantages of all segments, steps weighted by their clipped ratios.

    They are computed over the whole rollout and then cut, so that a segment's last step sees the
    next segment. The successor's value is the next step's cached value; at an episode's end, and
    after the rollout's last step, it is the one computed with the batch.
    """
    mean, std = value_scale(config, learner)
    joined: tuple[VTraceInputs, VTraceCache] = segments.join(
        (batch.vtrace, cache), config.rollout_length
    )
    steps, now = joined
    ended: Array = steps.terminated | steps.truncated
    next_value = jnp.concatenate([now.value[1:], steps.next_value[-1:]])
    advantage, _ = gae(
        steps.reward,
        now.value * std + mean,
        jnp.where(ended, steps.next_value, next_value) * std + mean,
        steps.terminated,
        steps.truncated,
        gamma=learner.hparams["gamma"],
        lam=learner.hparams["lam"],
        rho=jnp.minimum(now.ratio, learner.hparams["rho_clip"]),
        c=jnp.minimum(now.ratio, learner.hparams["c_clip"]),
    )
    return segments.cut(advantage, config.horizon)


def gradient_step(
    ppo: PPO,
    unravel: Unravel,
    coefs: dict[str, Array],
    state: UpdateState,
    inputs: tuple[Batch, Key],
) -> tuple[UpdateState, Array]:
    """Take one gradient step on one minibatch; parameters are one vector here.

    Returns the state after it, and METRICS + STEP_METRICS as one vector.
    """
    learner, is_first, stopped, cache = state
    part, key = inputs
    hparams = learner.hparams
    if ppo.config.sampling == "prioritized":
        part = part._replace(advantage=part.advantage * part.weight)
    if size := ppo.networks.distribution.noise_size:
        part = part._replace(noise=jax.random.normal(key, (*part.log_prob.shape, size)))
    grads, metrics = gradients(ppo, unravel, coefs, learner, part)
    kl = metrics[_KL]
    stopped = stopped | ((hparams["target_kl"] > 0) & (kl > 1.5 * hparams["target_kl"]))
    step = optimizer.step(
        make_optimizer(ppo.config, unravel),
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
    if ppo.config.schedule == "adaptive_kl":
        # The KL of an unchanged policy carries no information: before the first step, or stopped.
        rate = jnp.where(is_first | stopped, learner.learning_rate, _adapted_rate(learner, kl))
        learner = learner.replace(learning_rate=rate)
    step_metrics = jnp.stack([step.grad_norm, stopped * 1.0, ~step.finite * 1.0])
    state = UpdateState(learner, jnp.zeros((), bool), stopped, cache)
    return state, jnp.concatenate([metrics, step_metrics])


def gradients(
    ppo: PPO, unravel: Unravel, coefs: dict[str, Array], learner: PPOState, part: Batch
) -> tuple[Array, Array]:
    """Return the gradient and METRICS of a minibatch, computed in `accumulate` equal parts."""

    def loss(flat: Array, part: Batch) -> tuple[Array, Array]:
        params = unravel(flat)
        return ppo_loss.loss(ppo.config, ppo.networks, params, learner, part, coefs, ppo.extra_loss)

    grad, number = jax.grad(loss, has_aux=True), ppo.config.accumulate
    if number == 1:
        return grad(learner.params, part)
    order = jnp.arange(_num_rows(part) // ppo.num_shards).reshape(number, 1, -1)
    order = jnp.broadcast_to(order, (number, ppo.num_shards, order.shape[-1]))

    def add(total: tuple[Array, Array], part: Batch):
        return jax.tree.map(jnp.add, total, grad(learner.params, part)), None

    # Every loss is a mean, so the mean over equal parts is the loss of the whole minibatch.
    zeros = (jnp.zeros_like(learner.params), jnp.zeros(len(METRICS)))
    total, _ = jax.lax.scan(add, zeros, minibatch.gather_minibatches(part, order))
    return jax.tree.map(lambda x: x / number, total)


def _adapted_rate(learner: PPOState, kl: Array) -> Array:
    """Return the learning rate that keeps KL near `desired_kl`."""
    hparams = learner.hparams
    bounds = hparams["min_learning_rate"], hparams["max_learning_rate"]
    return schedules.adapt_to_kl(learner.learning_rate, kl, hparams["desired_kl"], *bounds)


def _num_rows(batch: Batch) -> int:
    return batch.log_prob.shape[1]
