"""A reward that is linear in features of a step, solved for from the returns of whole episodes.

If every reward is w·φ + c, then so is its mean over an episode, of the mean of φ: one equation for
each episode, and least squares gives w. Gradient descent on the same loss hardly gets there:
episodes differ most of all in how good they are, and whatever comes with that explains their
returns; what tells the steps of one episode apart lies across it, where the loss is nearly flat.

    means over episodes e of   m_e = mean_t φ_t,   r_e = R / T
    w = (Cov[m] + ρ Var[φ])⁻¹ Cov[m, r]          Var[φ], of single steps, is diagonal
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array

_RIDGE = 1e-5  # ρ: small, as means over episodes vary far less than steps
_MEMORY = 1000  # what was absorbed so many times ago counts a third: features drift, slowly
_SMALLEST = 1e-4  # deviation of a feature that says nothing


class Fit(struct.PyTreeNode):
    """The solution, [n], and the averages over episodes that it was solved from."""

    weights: Array
    constant: Array
    count: Array  # how often episodes were absorbed
    mean: Array  # of m
    product: Array  # [n, n], of m mᵀ
    cross: Array  # of m r
    target: Array  # of r
    square: Array  # of φ²


def init(size: int) -> Fit:
    """Return the fit that knows nothing, and guesses 0."""
    none, one = jnp.zeros(size), jnp.zeros(())
    return Fit(none, one, one, none, jnp.zeros((size, size)), none, one, none)


def guess(fit: Fit, features: Array) -> Array:
    """Return the rewards of steps, from their features [..., n]."""
    return features @ fit.weights + fit.constant


def absorb(fit: Fit, features: Array, length: Array, returned: Array) -> Fit:
    """Take in episodes, features [episodes, T, n] (what lies beyond a length is left out)."""
    steps = jnp.maximum(length, 1).astype(jnp.float32)
    inside = jnp.arange(features.shape[1])[None] < length[:, None]
    weight = inside / steps[:, None] / len(length)  # every episode counts alike

    def over_steps(values: Array) -> Array:
        return jnp.einsum("et,etn->n", weight, values)

    mean = jnp.einsum("et,etn->en", weight, features) * len(length)
    reward = returned / steps
    seen = fit.replace(
        mean=jnp.mean(mean, axis=0),
        product=mean.T @ mean / len(length),
        cross=reward @ mean / len(length),
        target=jnp.mean(reward),
        square=over_steps(jnp.square(features)),
        count=fit.count + 1.0,
    )
    rate = 1.0 / jnp.minimum(seen.count, _MEMORY)
    averages = jax.tree.map(lambda old, new: old + rate * (new - old), fit, seen)
    solved = _solve(averages.replace(count=seen.count))
    fine = jnp.all(jnp.isfinite(solved.weights))
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), solved, fit)


def _solve(fit: Fit) -> Fit:
    scale = jnp.maximum(jnp.sqrt(jnp.maximum(fit.square - fit.mean**2, 0.0)), _SMALLEST)
    spread = (fit.product - jnp.outer(fit.mean, fit.mean)) / jnp.outer(scale, scale)
    factor = jax.scipy.linalg.cho_factor(spread + _RIDGE * jnp.eye(len(scale)), lower=True)
    weights = jax.scipy.linalg.cho_solve(factor, (fit.cross - fit.mean * fit.target) / scale)
    weights = weights / scale
    return fit.replace(weights=weights, constant=fit.target - weights @ fit.mean)
