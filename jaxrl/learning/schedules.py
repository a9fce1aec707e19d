"""Schedules over a run, and a learning rate that adapts to the KL divergence."""

import jax.numpy as jnp

from jaxrl.types import Array

SCHEDULES = ("constant", "linear", "cosine", "exponential", "adaptive_kl")


def multiplier(kind: str, progress: Array, floor: Array | float) -> Array:
    """Return the factor at `progress` in [0, 1], falling from 1 to `floor`.

    linear: 1 − (1 − f) p;   cosine: f + (1 − f) (1 + cos πp) / 2;   exponential: f^p
    (an exponential never reaches 0: without a floor it ends at 1e-3).
    """
    progress = jnp.clip(progress, 0.0, 1.0)
    if kind == "linear":
        return 1.0 - (1.0 - floor) * progress
    if kind == "cosine":
        return floor + (1.0 - floor) * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
    if kind == "exponential":
        return jnp.power(jnp.where(jnp.asarray(floor) > 0, floor, 1e-3), progress)
    return jnp.ones_like(progress)


def learning_rate(kind: str, hparams: dict[str, Array], progress: Array) -> Array:
    """Return the scheduled learning rate at `progress` in [0, 1]."""
    return hparams["learning_rate"] * multiplier(kind, progress, hparams["schedule_floor"])


def adapt_to_kl(
    rate: Array, kl: Array, desired: Array, lowest: Array, highest: Array, factor: float = 1.5
) -> Array:
    """Shrink the rate when KL > 2·desired, grow it when KL < desired / 2, within bounds."""
    smaller, larger = rate / factor, rate * factor
    # A KL of exactly 0 means that nothing was updated: no reason to raise the rate.
    too_slow = (kl < 0.5 * desired) & (kl > 0.0)
    rate = jnp.where(kl > 2.0 * desired, smaller, jnp.where(too_slow, larger, rate))
    return jnp.clip(rate, lowest, highest)
