"""REPPO's gradient steps: update epochs × minibatches over one batch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.reppo.batch import REPPO, Batch, Params, REPPOState
from jaxrl.algorithms.reppo.loss import loss
from jaxrl.learning import minibatch, optimizer
from jaxrl.types import Array, Key, Mean, Metrics


def update(reppo: REPPO, learner: REPPOState, batch: Batch, key: Key) -> tuple[REPPOState, Metrics]:
    """Take update epochs × minibatches gradient steps; every step of the batch once per epoch."""
    c = reppo.config
    vectors, unravel = optimizer.flatten(learner.params)
    step = partial(gradient_step, reppo, unravel)

    def epoch(learner: REPPOState, inputs: tuple[Array, Key]) -> tuple[REPPOState, Metrics]:
        rows, keys = inputs
        parts = minibatch.gather_minibatches(batch, rows)
        return minibatch.scan_updates(step, learner, (parts, keys))

    keys = jax.random.split(key, (c.update_epochs, 1 + c.num_minibatches))
    # All epochs are shuffled at once: that is one sort instead of one for each.
    rows = jax.vmap(
        lambda key: minibatch.shuffled_rows(
            key, batch.target.shape[1], c.num_minibatches, reppo.num_shards
        )
    )(keys[:, 0])
    learner, metrics = jax.lax.scan(epoch, learner.replace(params=vectors), (rows, keys[:, 1:]))
    params = {name: unravel[name](vector) for name, vector in learner.params.items()}
    return learner.replace(params=params), jax.tree.map(lambda x: jnp.sum(x, axis=0), metrics)


def gradient_step(
    reppo: REPPO,
    unravel: dict[str, Callable[[Array], Any]],
    learner: REPPOState,
    inputs: tuple[Batch, Key],
) -> tuple[REPPOState, Metrics]:
    """Take one step of every network on one minibatch, all from the same parameters."""
    part, key = inputs

    def total(vectors: Params) -> tuple[Array, Metrics]:
        params = {name: unravel[name](vector) for name, vector in vectors.items()}
        return loss(reppo, params, learner.hparams, part, key)

    grads, metrics = jax.grad(total, has_aux=True)(learner.params)
    steps, finite = optimizer.step_all(
        lambda name: reppo.transform,
        learner.params,
        learner.optimizer,
        grads,
        learning_rates=dict.fromkeys(grads, learner.learning_rate),
    )
    metrics |= {f"train/{n}_grad_norm": Mean.of(each.grad_norm) for n, each in steps.items()}
    return learner.replace(
        params={name: each.params for name, each in steps.items()},
        optimizer={name: each.opt_state for name, each in steps.items()},
        skipped_updates=learner.skipped_updates + ~finite,
        nonfinite_streak=jnp.where(finite, 0, learner.nonfinite_streak + 1),
    ), metrics
