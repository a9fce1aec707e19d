"""Exploration noise that outlasts a step: it lies beside the network's carry in a rollout.

Zeros in a row's noise, as after the end of an episode, make its next step sample it. Evaluations
and loaded policies pass the network's own carry, and act without such noise.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array, Key, PyTree


class Carry(NamedTuple):
    """The carry of a policy in rollouts with such noise."""

    network_carry: PyTree  # of the network; () if not recurrent
    noise: PyTree


class Exploration(NamedTuple):
    """How rollouts explore."""

    initial_noise: Callable[[int], PyTree]
    # (actor's params, obs, carry, key) -> (actor's output, raw action, carry)
    act: Callable[[PyTree, PyTree, Carry, Key], tuple[Array, Array, Carry]]


def network_carry(carry: PyTree) -> PyTree:
    """Return the part of a policy's carry that belongs to the network."""
    return carry.network_carry if isinstance(carry, Carry) else carry


class Noise(NamedTuple):
    """Normal noise on the actions of every row."""

    sample: Array  # [N, actions], standard normal
    left: Array  # int32[N], further steps with this sample
    scale: Array  # [N], of this episode; 0: to be sampled


def initial_noise(number: int, actions: int) -> Noise:
    """Return noise that the next step samples, for `number` rows."""
    sample = jnp.zeros((number, actions), jnp.float32)
    return Noise(sample, jnp.zeros(number, jnp.int32), jnp.zeros(number, jnp.float32))


def resample(noise: Noise, key: Key, max_hold: int, min_scale: float) -> Noise:
    """Return the noise of this step.

    A sample is held for n steps with a probability in proportion to 1/n², up to `max_hold` steps.
    The scale is sampled between `min_scale` and 1 at the start of an episode. References: Dabney et
    al., 2021, for actions that are held; Seo et al., 2025, for a scale of each row.
    """
    key_sample, key_hold, key_scale = jax.random.split(key, 3)
    starts = noise.scale == 0
    due = starts | (noise.left == 0)
    # Sampled for all rows: some row is due at almost every step.
    sample = jax.random.normal(key_sample, noise.sample.shape)
    log_number = jnp.log(jnp.arange(1, max_hold + 1, dtype=jnp.float32))
    left = jax.random.categorical(key_hold, -2.0 * log_number, shape=due.shape)
    # Between 1 and `min_scale`, in an interval without zero, which would be sampled again.
    scale = 1.0 - (1.0 - min_scale) * jax.random.uniform(key_scale, due.shape)
    return Noise(
        sample=jnp.where(due[:, None], sample, noise.sample),
        left=jnp.where(due, left.astype(jnp.int32), noise.left - 1),
        scale=jnp.where(starts, scale, noise.scale),
    )
