"""Optimisers, and a gradient step that skips non-finite gradients."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jax.flatten_util import ravel_pytree

from jaxrl.types import Array, PyTree


class Step(NamedTuple):
    """The result of one gradient step."""

    params: PyTree
    opt_state: PyTree
    grad_norm: Array
    finite: Array  # bool: the norm of all gradients is finite


def adam(max_grad_norm: float, epsilon: float) -> optax.GradientTransformation:
    """Build clipped Adam without a learning rate: the rate is traced and applied in `step`."""
    clip = optax.clip_by_global_norm(max_grad_norm) if max_grad_norm > 0 else optax.identity()
    return optax.chain(clip, optax.scale_by_adam(eps=epsilon))


def muon(
    max_grad_norm: float, epsilon: float, unravel: Callable[[Array], PyTree]
) -> optax.GradientTransformation:
    """Build clipped Muon for a parameter vector: orthogonal steps for its matrices.

    Adam updates the other parameters. Reference: Jordan et al., 2024.
    """
    clip = optax.clip_by_global_norm(max_grad_norm) if max_grad_norm > 0 else optax.identity()
    # optax's muon applies the learning rate too; −1 gives the plain direction.
    inner = optax.chain(clip, optax.contrib.muon(-1.0, eps=epsilon))

    def init(params: PyTree) -> PyTree:
        return inner.init(unravel(params))

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        steps, state = inner.update(unravel(updates), state, unravel(params))
        return ravel_pytree(steps)[0], state

    return optax.GradientTransformation(init, update)


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Choose between two trees by one boolean."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def step(
    transform: optax.GradientTransformation,
    params: PyTree,
    opt_state: PyTree,
    grads: PyTree,
    *,
    learning_rate: Array,
    allowed: Array | bool = True,
) -> Step:
    """Apply −learning_rate × update, unless a gradient is non-finite or the step not allowed."""
    grad_norm = optax.tree.norm(grads)
    finite = jnp.isfinite(grad_norm)
    updates, new_state = transform.update(grads, opt_state, params)
    new_params = jax.tree.map(lambda p, u: p - learning_rate * u, params, updates)
    go = finite & allowed
    return Step(
        params=select(go, new_params, params),
        opt_state=select(go, new_state, opt_state),
        grad_norm=jnp.where(finite, grad_norm, 0.0),
        finite=finite,
    )
