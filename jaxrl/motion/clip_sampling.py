"""Which clips to train on: those that fail more often come up more often, but none is forgotten."""

import chex
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array


class Resampling(struct.PyTreeNode):
    """What evaluations have shown of each clip, and how often it should come up."""

    failures: Array  # float32 [clips], older ones counting for less
    evaluations: Array  # int32, shape ()
    weights: Array  # float32 [clips], sum 1


def init(num_clips: int) -> Resampling:
    """Start with nothing known: all clips alike."""
    return Resampling(
        failures=jnp.zeros(num_clips, jnp.float32),
        evaluations=jnp.zeros((), jnp.int32),
        weights=jnp.full(num_clips, 1.0 / num_clips, jnp.float32),
    )


def update(
    state: Resampling, failed: Array, *, floor: Array | float, decay: Array | float
) -> Resampling:
    """Take in one evaluation of all clips; `failed` [clips] is true or 1 where a clip failed.

        f ← decay · f + failed
        w = floor / clips + (1 − floor) · f / Σf      (uniform while Σf is 0)

    The floor is the share of clips drawn evenly. Without it (floor 0, decay 1: PHC's soft rule)
    a clip that never failed is never trained on again, and can be forgotten unnoticed until the
    next evaluation. With decay 0 only the clips that failed just now are drawn more often.
    """
    chex.assert_equal_shape([state.failures, failed])
    failures = decay * state.failures + failed.astype(jnp.float32)
    total = jnp.sum(failures)
    even = 1.0 / failures.size
    share = jnp.where(total > 0, failures / total, even)
    return Resampling(
        failures=failures,
        evaluations=state.evaluations + 1,
        weights=floor * even + (1.0 - floor) * share,
    )
