"""Adversarial imitation: the losses of a discriminator, and the reward that it gives.

A logit above 0 means "demonstration". References: Peng et al., AMP, 2021; Ho & Ermon, GAIL, 2016.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from jaxrl.types import Array

LOSSES = ("bce", "least_squares")


def classification_loss(kind: str, demo: Array, agent: Array) -> Array:
    """Return the loss of logits [n] of demonstrations and [m] of the agent.

    bce:            ½ E[softplus(−d)] + ½ E[softplus(a)]
    least_squares:  ½ E[½ (d − 1)²] + ½ E[½ (a + 1)²]
    """
    chex.assert_rank([demo, agent], 1)
    if kind == "bce":
        return 0.5 * (jnp.mean(jax.nn.softplus(-demo)) + jnp.mean(jax.nn.softplus(agent)))
    return 0.25 * (jnp.mean(jnp.square(demo - 1.0)) + jnp.mean(jnp.square(agent + 1.0)))


def gradient_penalty(logit: Callable[[Array], Array], inputs: Array) -> Array:
    """Return E ‖∂logit/∂x‖² over inputs [n, features]; `logit` maps one input to a scalar."""
    chex.assert_rank(inputs, 2)
    grads = jax.vmap(jax.grad(logit))(inputs)
    return jnp.mean(jnp.sum(jnp.square(grads), -1))


def reward(kind: str, logit: Array) -> Array:
    """Return the style reward: −log(1 − σ(d)), bounded; or max(0, 1 − ¼ (d − 1)²)."""
    if kind == "bce":
        return -jnp.log(jnp.maximum(1.0 - jax.nn.sigmoid(logit), 1e-4))
    return jnp.maximum(0.0, 1.0 - 0.25 * jnp.square(logit - 1.0))
