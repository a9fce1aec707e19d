"""Sampling weights of clips: those that fail more often are sampled more often."""

import chex
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array


class Resampling(struct.PyTreeNode):
    """Failures of each clip so far, and its sampling probability."""

    failures: Array  # float32 [clips], decayed sums
    evaluations: Array  # int32, shape ()
    weights: Array  # float32 [clips], sum 1


def init(num_clips: int) -> Resampling:
    """Return equal weights."""
    return Resampling(
        failures=jnp.zeros(num_clips, jnp.float32),
        evaluations=jnp.zeros((), jnp.int32),
        weights=jnp.full(num_clips, 1.0 / num_clips, jnp.float32),
    )


def update(
    state: Resampling, failed: Array, *, floor: Array | float, decay: Array | float
) -> Resampling:
    """Add one evaluation of all clips; `failed` [clips] is true or 1 where a clip failed.

        f ← decay · f + failed
        w = floor / clips + (1 − floor) · f / Σf      (uniform while Σf is 0)

    The floor is the fraction of clips sampled uniformly. Without it (floor 0, decay 1: PHC's soft
    rule) a clip that never failed is never trained on again, and can be forgotten unnoticed until
    the next evaluation. With decay 0 only the clips that failed last are sampled more often.
    """
    chex.assert_equal_shape([state.failures, failed])
    failures = decay * state.failures + failed.astype(jnp.float32)
    total = jnp.sum(failures)
    uniform = 1.0 / failures.size
    by_failures = jnp.where(total > 0, failures / total, uniform)
    return Resampling(
        failures=failures,
        evaluations=state.evaluations + 1,
        weights=floor * uniform + (1.0 - floor) * by_failures,
    )
