"""Temporal differences: targets of Q values, as scalars or as distributions (C51, HL-Gauss)."""

import jax
import jax.numpy as jnp

from jaxrl.types import Array


def target(reward: Array, next_value: Array, terminated: Array, *, gamma: Array | float) -> Array:
    """Return r + γ V(s'), and r alone where terminated; a truncated step bootstraps."""
    return reward + gamma * jnp.where(terminated, 0.0, next_value)


def n_step(reward: Array, ended: Array, *, gamma: Array | float) -> tuple[Array, Array]:
    """Return Σ γᵏ r of the rewards up to an episode's end, and how many they are.

    Args:
      reward, ended: consecutive steps along the last axis.
    """
    before = jnp.cumsum(ended, axis=-1) - ended  # ends before each step
    counts = before == 0
    discount = jnp.power(gamma, jnp.arange(reward.shape[-1], dtype=reward.dtype))
    total = jnp.sum(jnp.where(counts, reward, 0.0) * _along_last(discount, reward), axis=-1)
    return total, jnp.sum(counts, axis=-1)


def support(lowest: float, highest: float, number: int) -> Array:
    """Return the values of a distribution's atoms."""
    return jnp.linspace(lowest, highest, number, dtype=jnp.float32)


def expected(logits: Array, atoms: Array) -> Array:
    """Return the mean value of distributions [..., atoms]."""
    return jnp.sum(jax.nn.softmax(logits) * _along_last(atoms, logits), axis=-1)


def projected(
    reward: Array, next_probs: Array, terminated: Array, atoms: Array, *, gamma: Array | float
) -> Array:
    """Return the distribution of r + γ Z(s') on the same atoms [..., atoms].

    Each shifted atom is split between its two neighbours by distance; those outside the support
    are clipped to its ends. Reference: Bellemare et al., 2017.
    """
    spread = _along_last(atoms, next_probs)
    moved = target(
        reward[..., None],
        jnp.broadcast_to(spread, next_probs.shape),
        terminated[..., None],
        gamma=gamma,
    )
    gap = atoms[1] - atoms[0]
    moved = jnp.clip(moved, atoms[0], atoms[-1])
    # [..., from, to]: the fraction of each shifted atom that an atom receives.
    near = 1.0 - jnp.abs(moved[..., None] - _along_last(atoms, moved[..., None])) / gap
    return jnp.sum(next_probs[..., None] * jnp.clip(near, 0.0, 1.0), axis=-2)


def hl_gauss(value: Array, atoms: Array, *, sigma: float = 0.75) -> Array:
    """Return values [...] as histograms [..., atoms] of normal distributions around them.

    The probability of an atom is the mass of N(value, (sigma · gap)²) in the bin around it, and
    that outside of all bins is shared out. Values are clipped to the support; away from its ends
    the histogram has their mean. Reference: Imani and White, 2018.
    """
    gap = atoms[1] - atoms[0]
    edges = jnp.append(atoms, atoms[-1] + gap) - 0.5 * gap
    value = jnp.clip(value, atoms[0], atoms[-1])[..., None]
    mass = jax.scipy.stats.norm.cdf((_along_last(edges, value) - value) / (sigma * gap))
    return jnp.diff(mass, axis=-1) / (mass[..., -1:] - mass[..., :1])


def cross_entropy(logits: Array, probs: Array) -> Array:
    """Return −Σ p log q for logits of q, [..., atoms] -> [...]."""
    return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def polyak(old: Array, new: Array, rate: Array | float) -> Array:
    """Return the new target parameters, rate × old + (1 − rate) × new."""
    return rate * old + (1.0 - rate) * new


def _along_last(atoms: Array, like: Array) -> Array:
    return atoms.reshape((1,) * (like.ndim - 1) + atoms.shape)
