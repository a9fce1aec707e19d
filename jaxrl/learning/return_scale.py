"""The scale of returns: what rewards are divided by, so that values lie in a known range."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.learning import normalizer
from jaxrl.learning.normalizer import RunningStats
from jaxrl.types import Array

BOUND = 5.0  # of scaled returns, ±


class ReturnScale(struct.PyTreeNode):
    """Statistics of the running discounted returns."""

    stats: RunningStats
    largest: Array  # the largest absolute value


def init() -> ReturnScale:
    """Return empty statistics, which scale by 1."""
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    return ReturnScale(normalizer.init(scalar), jnp.zeros((), jnp.float32))


def update(scale: ReturnScale, returns: Array) -> ReturnScale:
    """Merge returns of any shape; those that are not finite change nothing."""
    largest = jnp.maximum(scale.largest, jnp.max(jnp.abs(returns)))
    largest = jnp.where(jnp.isfinite(largest), largest, scale.largest)
    return ReturnScale(normalizer.update(scale.stats, returns), largest)


def divisor(scale: ReturnScale) -> Array:
    """Return their standard deviation, or more if the largest would be out of bounds."""
    return jnp.maximum(normalizer.std(scale.stats), scale.largest / BOUND)
