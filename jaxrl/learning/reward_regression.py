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
    target: Array  # mean of r
    covariance: Array  # [n, n], of m
    cross: Array  # covariance of m and r
    variance: Array  # of φ, over single steps


def init(size: int) -> Fit:
    """Return the fit that knows nothing, and guesses 0."""
    none, one = jnp.zeros(size), jnp.zeros(())
    return Fit(none, one, one, none, one, jnp.zeros((size, size)), none, none)


def guess(fit: Fit, features: Array) -> Array:
    """Return the rewards of steps, from their features [..., n]."""
    return _product(features, fit.weights) + fit.constant


def absorb(fit: Fit, features: Array, length: Array, returned: Array) -> Fit:
    """Take in episodes, features [episodes, T, n] (what lies beyond a length is left out)."""
    seen = _averages(fit, features, length, returned)
    rate = 1.0 / jnp.minimum(seen.count, _MEMORY)
    solved = _solve(_merge(fit, seen, rate))
    fine = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(solved)]))
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), solved, fit)


def _averages(fit: Fit, features: Array, length: Array, returned: Array) -> Fit:
    """Return the fit with the averages of these episodes alone; each of them counts alike."""
    number, steps = len(length), jnp.maximum(length, 1).astype(jnp.float32)
    inside = jnp.arange(features.shape[1])[None] < length[:, None]
    features = jnp.where(inside[..., None], features, 0.0)  # not by a weight: 0 × NaN is NaN
    means, rewards = jnp.sum(features, axis=1) / steps[:, None], returned / steps
    mean, target = jnp.mean(means, axis=0), jnp.mean(rewards)
    apart = means - mean[None]
    strayed = jnp.where(inside[..., None], jnp.square(features - mean[None, None]), 0.0)
    return fit.replace(
        count=fit.count + 1.0,
        mean=mean,
        target=target,
        covariance=_product(apart.T, apart) / number,
        cross=_product(rewards - target, apart) / number,
        variance=jnp.mean(jnp.sum(strayed, axis=1) / steps[:, None], axis=0),
    )


def _merge(old: Fit, new: Fit, rate: Array) -> Fit:
    """Move averages towards new ones by a share.

    Covariances are of what is left without the mean, and merged as such (as in `normalizer`):
    E[m mᵀ] − E[m] E[m]ᵀ would cancel where a feature is nearly constant but not 0.
    """
    apart, missed = new.mean - old.mean, new.target - old.target
    both = rate * (1.0 - rate)
    moved = jax.tree.map(lambda a, b: a + rate * (b - a), old, new)
    return moved.replace(
        count=new.count,
        covariance=moved.covariance + both * jnp.outer(apart, apart),
        cross=moved.cross + both * apart * missed,
        variance=moved.variance + both * jnp.square(apart),
    )


def _solve(fit: Fit) -> Fit:
    scale = jnp.maximum(jnp.sqrt(fit.variance), _SMALLEST)
    spread = fit.covariance / jnp.outer(scale, scale)
    factor = jax.scipy.linalg.cho_factor(spread + _RIDGE * jnp.eye(len(scale)), lower=True)
    weights = jax.scipy.linalg.cho_solve(factor, fit.cross / scale) / scale
    return fit.replace(weights=weights, constant=fit.target - _product(weights, fit.mean))


def _product(a: Array, b: Array) -> Array:
    """Return a @ b in full precision: TF32, a GPU's default, errs by more than ρ."""
    return jnp.matmul(a, b, precision="highest")
