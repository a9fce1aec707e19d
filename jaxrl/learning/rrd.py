"""Randomized return decomposition: rewards for single steps, learnt from whole returns.

Only R, the return of an episode of T steps, is known. A network guesses a reward for each of K
steps drawn from it, and is trained so that they account for R. Reference: Ren et al., 2022.

    per step      (mean_K r̂ − R / T)²            scale-free: episodes of any length count alike
    whole return  (T/K Σ_K r̂ − R)²               the paper's: T² times that

Both also punish the spread of r̂ within an episode, by the variance of the mean over a random
subset. `unbiased` subtracts an estimate of it, which leaves the loss of the full decomposition in
expectation. Of T steps, K drawn without replacement, with sample variance s²:

    Var[mean_K r̂] ≈ (1 − K/T) s² / K             (s² / K if drawn with replacement, K > T)
"""

import jax.numpy as jnp

from jaxrl.types import Array


def loss(
    guess: Array, length: Array, returned: Array, *, whole_return: bool, unbiased: bool
) -> tuple[Array, Array, Array]:
    """Return (loss to minimise, squared miss, estimated spread of it), means over episodes.

    The loss is the squared miss, less the spread if `unbiased`.

    Args:
      guess: [episodes, K], r̂ of the steps drawn.
      length, returned: [episodes], T and R.
    """
    steps = jnp.maximum(length, 1).astype(jnp.float32)
    miss = jnp.mean(guess, axis=1) - returned / steps
    # In units of whole returns everything is T times larger, and squares T² times.
    weight = jnp.square(steps) if whole_return else jnp.ones_like(steps)
    spread = jnp.mean(weight * subset_variance(guess, length))
    total = jnp.mean(weight * jnp.square(miss))
    return (total - spread if unbiased else total), total, spread


def subset_variance(guess: Array, length: Array) -> Array:
    """Estimate, from one subset [..., K], the variance of its mean over all subsets."""
    size = guess.shape[-1]
    if size == 1:
        return jnp.zeros(guess.shape[:-1], guess.dtype)
    steps = jnp.maximum(length, 1).astype(jnp.float32)
    share = jnp.where(size <= steps, 1.0 - size / steps, 1.0)
    share = jnp.where(steps > 1, share, 0.0)
    return share * jnp.var(guess, axis=-1, ddof=1) / size


def ircr_reward(returned: Array, lowest: Array, highest: Array) -> Array:
    """Return (R − min) / (max − min): every step of an episode shares its rank.  Gangwani, 2020."""
    return (returned - lowest) / jnp.maximum(highest - lowest, 1e-8)
