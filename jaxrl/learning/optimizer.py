"""Optimisers, and a gradient step that skips non-finite gradients."""

from collections.abc import Callable, Mapping
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


def adam(
    max_grad_norm: float, epsilon: float, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """Build clipped Adam without a learning rate: the rate is traced and applied in `step`.

    With weight decay, which the learning rate scales too, it is AdamW.
    """
    clip = optax.clip_by_global_norm(max_grad_norm) if max_grad_norm > 0 else optax.identity()
    plain = optax.chain(clip, optax.scale_by_adam(eps=epsilon))
    return optax.chain(plain, optax.add_decayed_weights(weight_decay)) if weight_decay else plain


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


def flatten(
    params: Mapping[str, PyTree],
) -> tuple[dict[str, Array], dict[str, Callable[[Array], PyTree]]]:
    """Return each network's parameters as one vector, and the functions that give them back.

    A gradient step of one vector is a few kernels, of many small arrays many.
    """
    pairs = {name: ravel_pytree(tree) for name, tree in params.items()}
    vectors = {name: vector for name, (vector, _) in pairs.items()}
    return vectors, {name: unravel for name, (_, unravel) in pairs.items()}


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


def step_all(
    transform: Callable[[str], optax.GradientTransformation],
    params: Mapping[str, PyTree],
    opt_states: Mapping[str, PyTree],
    grads: Mapping[str, PyTree],
    *,
    learning_rates: Mapping[str, Array],
    allowed: Mapping[str, Array] | None = None,
) -> tuple[dict[str, Step], Array]:
    """Take a step of every network, each clipped by its own norm; none if one is non-finite.

    `transform` returns the optimiser of a network. Returns the steps, and whether all gradients are
    finite.
    """
    # All or none: networks must not learn from one that is not finite.
    finite = jnp.isfinite(sum(optax.tree.norm(grad) for grad in grads.values()))
    steps = {
        name: step(
            transform(name),
            params[name],
            opt_states[name],
            grad,
            learning_rate=learning_rates[name],
            allowed=finite if allowed is None else finite & allowed[name],
        )
        for name, grad in grads.items()
    }
    return steps, finite
