"""Contact forces of Brax's generalized physics, sooner: a line search in one product.

Brax looks for forces x ≥ 0 that bring a x + b to nothing by an accelerated projected gradient
(FISTA). Each of its turns shortens a step until it is short enough, one trial after the other:
hundreds of kernels that a GPU spends more time starting than computing. All lengths that could be
tried are known beforehand. Here they are tried at once, and the one that Brax would have come to
is taken: the same forces up to rounding, by a tenth of the turns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array

_Product = Callable[[Array], Array]  # a x of every row x

# As in jaxopt, whose solver Brax calls.
_TOLERANCE = 1e-3
_SHORTEST_STEP = 1e-6


def force(sys: Any, state: Any) -> Array:
    """Return the forces (qd_size,) of contacts and joint limits, as Brax's constraint.force."""
    if state.con_jac.shape[0] == 0:
        return jnp.zeros(sys.qd_size())
    answer = state.con_jac @ state.mass_mx_inv  # of the joints to a force at each constraint
    b = answer @ state.qf_smooth - state.con_aref
    times = _product(state.con_jac, answer, state.con_diag)
    x = solve_non_negative(times, b, turns=sys.solver_iterations, halvings=sys.solver_maxls)
    return state.con_jac.T @ x


def _product(jacobian: Array, answer: Array, diagonal: Array) -> _Product:
    """Return the product with a = answer jacobianᵀ + diagonal, which is symmetric."""
    constraints, joints = jacobian.shape
    if constraints > 2 * joints:  # then a's factors have fewer numbers than a
        return lambda rows: (rows @ jacobian) @ answer.T + rows * diagonal
    a = answer @ jacobian.T + jnp.diag(diagonal)
    return lambda rows: rows @ a


class _Search(NamedTuple):
    x: Array
    residual: Array  # a x + b
    ahead: Array  # x carried on by its own momentum: where the next gradient is taken
    residual_ahead: Array
    momentum: Array
    step: Array  # the longest that the next turn tries
    error: Array


def solve_non_negative(times: _Product, b: Array, *, turns: int, halvings: int) -> Array:
    """Minimise |a x + b|² over x ≥ 0 from x = 0, by as many turns of FISTA at most.

    `times` is the product with a, which must be symmetric.
    """
    nothing, one = jnp.zeros_like(b), jnp.ones((), b.dtype)
    start = _Search(nothing, b, nothing, b, one, one, jnp.full((), jnp.inf, b.dtype))

    def turn(_: Array, search: _Search) -> _Search:
        new = _turn(times, b, search, halvings)
        go_on = search.error > _TOLERANCE
        return jax.tree.map(lambda n, o: jnp.where(go_on, n, o), new, search)

    return jax.lax.fori_loop(0, turns, turn, start).x


def _turn(times: _Product, b: Array, search: _Search, halvings: int) -> _Search:
    gradient = times(search.residual_ahead)
    steps = search.step * 0.5 ** jnp.arange(halvings + 1, dtype=b.dtype)
    trials = jnp.maximum(search.ahead[None] - jnp.outer(steps, gradient), 0)
    moved = trials - search.ahead[None]
    residuals = times(trials) + b[None]
    rise = _halved_squares(residuals) - _halved_squares(search.residual_ahead)
    # Short enough is where the gradient's promise is kept, up to the curvature a step allows for.
    allowed = steps * (moved @ gradient) + _halved_squares(moved)
    too_long = steps * rise > allowed + jnp.finfo(b.dtype).eps
    # The first that is short enough; the last if none is.
    taken = jnp.argmin(too_long.at[-1].set(False))
    x, residual, step = trials[taken], residuals[taken], steps[taken]
    momentum = 0.5 * (1 + jnp.sqrt(1 + 4 * search.momentum**2))
    carried = (search.momentum - 1) / momentum
    change = x - search.x
    longer = jnp.where(step <= _SHORTEST_STEP, 1.0, 2 * step)
    return _Search(
        x=x,
        residual=residual,
        ahead=x + carried * change,
        # What follows from two trials' residuals need not be multiplied out again.
        residual_ahead=residual + carried * (residual - search.residual),
        momentum=momentum,
        step=longer,
        error=jax.lax.stop_gradient(jnp.linalg.norm(change) / longer),
    )


def _halved_squares(rows: Array) -> Array:
    return 0.5 * jnp.sum(rows**2, axis=-1)
