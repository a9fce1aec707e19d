"""A reward that is linear in features of a step, by least squares on the returns of episodes.

If every reward is w·φ + c, then so is its mean over an episode, of the mean of φ: one equation for
each episode, and least squares gives w. Gradient descent on the same loss hardly converges:
episodes differ mostly in how good they are, and features that correlate with that explain the
returns. The directions that distinguish steps within an episode are nearly flat in the loss.

    means over episodes e of   m_e = mean_t φ_t,   r_e = R / T
    w = (Cov[m] + ρ Var[φ])⁻¹ Cov[m, r]          Var[φ], of single steps, is diagonal
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl.types import Array

_RIDGE = 1e-5  # ρ: small, as means over episodes vary far less than steps
_MEMORY = 1000  # updates after which data counts a third: features drift, slowly
_SMALLEST = 1e-4  # lower bound of the std of a feature


class Fit(struct.PyTreeNode):
    """The solution, [n], and the averages over episodes that it was computed from."""

    weights: Array
    constant: Array
    count: Array  # number of updates
    mean: Array  # of m
    target: Array  # mean of r
    covariance: Array  # [n, n], of m
    cross: Array  # covariance of m and r
    variance: Array  # of φ, over single steps


def init(size: int) -> Fit:
    """Return the fit before any data, which predicts 0."""
    none, one = jnp.zeros(size), jnp.zeros(())
    return Fit(none, one, one, none, one, jnp.zeros((size, size)), none, none)


def predict(fit: Fit, features: Array) -> Array:
    """Return the predicted rewards of steps, from their features [..., n]."""
    return _product(features, fit.weights) + fit.constant


def update(fit: Fit, features: Array, length: Array, episode_return: Array) -> Fit:
    """Update the fit by features [episodes, T, n]; steps beyond a length are ignored."""
    batch = _averages(fit, features, length, episode_return)
    rate = 1.0 / jnp.minimum(batch.count, _MEMORY)
    solved = _solve(_merge(fit, batch, rate))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(solved)]))
    return jax.tree.map(lambda new, old: jnp.where(finite, new, old), solved, fit)


def _averages(fit: Fit, features: Array, length: Array, episode_return: Array) -> Fit:
    """Return the fit with the averages of these episodes alone, each with equal weight."""
    number, steps = len(length), jnp.maximum(length, 1).astype(jnp.float32)
    inside = jnp.arange(features.shape[1])[None] < length[:, None]
    features = jnp.where(inside[..., None], features, 0.0)  # not by a weight: 0 × NaN is NaN
    means, rewards = jnp.sum(features, axis=1) / steps[:, None], episode_return / steps
    mean, target = jnp.mean(means, axis=0), jnp.mean(rewards)
    deviation = means - mean[None]
    squares = jnp.where(inside[..., None], jnp.square(features - mean[None, None]), 0.0)
    return fit.replace(
        count=fit.count + 1.0,
        mean=mean,
        target=target,
        covariance=_product(deviation.T, deviation) / number,
        cross=_product(rewards - target, deviation) / number,
        variance=jnp.mean(jnp.sum(squares, axis=1) / steps[:, None], axis=0),
    )


def _merge(old: Fit, new: Fit, rate: Array) -> Fit:
    """Move the averages towards the new ones by a fraction `rate`.

    Covariances are about the mean, and merged as such (as in `normalizer`):
    E[m mᵀ] − E[m] E[m]ᵀ would cancel where a feature is nearly constant but not 0.
    """
    mean_gap, target_gap = new.mean - old.mean, new.target - old.target
    weight = rate * (1.0 - rate)
    moved = jax.tree.map(lambda a, b: a + rate * (b - a), old, new)
    return moved.replace(
        count=new.count,
        covariance=moved.covariance + weight * jnp.outer(mean_gap, mean_gap),
        cross=moved.cross + weight * mean_gap * target_gap,
        variance=moved.variance + weight * jnp.square(mean_gap),
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
