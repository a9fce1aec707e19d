"""Randomized return decomposition: rewards of single steps, learnt from episode returns.

Only R, the return of an episode of T steps, is known. A network predicts a reward for each of K
sampled steps, and is trained so that these explain R. Reference: Ren et al., 2022.

    per step      (mean_K r̂ − R / T)²            scale-free: episodes of any length count alike
    whole return  (T/K Σ_K r̂ − R)²               the paper's: T² times that

Both also penalise the spread of r̂ within an episode, by the variance of the mean over a random
subset. `unbiased` subtracts an estimate of it, which leaves the loss of the full decomposition in
expectation. With K of T steps sampled without replacement, and with sample variance s²:

    Var[mean_K r̂] ≈ (1 − K/T) s² / K             (s² / K with replacement, K > T)
"""

import jax.numpy as jnp

from jaxrl.types import Array


def loss(
    predicted: Array, length: Array, episode_return: Array, *, whole_return: bool, unbiased: bool
) -> tuple[Array, Array, Array]:
    """Return (loss, squared error, its estimated variance term), means over episodes.

    The loss is the squared error, minus the variance term if `unbiased`.

    Args:
      predicted: [episodes, K], r̂ of the sampled steps.
      length, episode_return: [episodes], T and R.
    """
    steps = jnp.maximum(length, 1).astype(jnp.float32)
    error = jnp.mean(predicted, axis=1) - episode_return / steps
    # In units of whole returns everything is T times larger, and squares T² times.
    weight = jnp.square(steps) if whole_return else jnp.ones_like(steps)
    variance = jnp.mean(weight * subset_variance(predicted, length))
    total = jnp.mean(weight * jnp.square(error))
    return (total - variance if unbiased else total), total, variance


def subset_variance(predicted: Array, length: Array) -> Array:
    """Estimate, from one subset [..., K], the variance of its mean over all subsets."""
    size = predicted.shape[-1]
    if size == 1:
        return jnp.zeros(predicted.shape[:-1], predicted.dtype)
    steps = jnp.maximum(length, 1).astype(jnp.float32)
    fraction = jnp.where(size <= steps, 1.0 - size / steps, 1.0)
    fraction = jnp.where(steps > 1, fraction, 0.0)
    return fraction * jnp.var(predicted, axis=-1, ddof=1) / size


def ircr_reward(episode_return: Array, lowest: Array, highest: Array) -> Array:
    """Return (R − min) / (max − min): the same for all steps of an episode.  Gangwani, 2020."""
    return (episode_return - lowest) / jnp.maximum(highest - lowest, 1e-8)
