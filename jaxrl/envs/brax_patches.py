"""Import Brax quietly, and replace two of its functions (and some of MJX: jaxrl.physics).

- `brax.fluid` (0.14.2) calls `jnp.clip` by an argument name that JAX has dropped.
- Contact forces of the generalized pipeline are found faster, by a line search in one product.

Brax minimises |a x + b|² over forces x ≥ 0 by an accelerated projected gradient (FISTA). Each
iteration halves a step size until it is short enough, one trial after the other: hundreds of
kernels that a GPU spends more time launching than computing. All step sizes that could be tried are
known beforehand. Here they are tried at once, and the one that Brax would choose is taken: the same
forces up to rounding, with a tenth of the sequential kernels.
"""

import contextlib
import io
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array

_Product = Callable[[Array], Array]  # a x for every row x

# As in jaxopt, whose solver Brax calls.
_TOLERANCE = 1e-3
_MIN_STEP_SIZE = 1e-6


def import_brax() -> types.ModuleType:
    """Return `brax.envs`, patched; without notices of unmaintained pipelines and missing warp."""
    with warnings.catch_warnings(), without_warp_notice():
        warnings.simplefilter("ignore")
        from brax import envs, fluid
        from brax.generalized import constraint

        from jaxrl.physics import mjx_patches
    fixed = {"clip": lambda x, a_min: jnp.maximum(x, a_min)}
    fluid.jp = types.SimpleNamespace(**{**vars(jnp), **fixed})
    constraint.force = contact_force
    mjx_patches.install()
    return envs


@contextlib.contextmanager
def without_warp_notice() -> Iterator[None]:
    """Drop what MuJoCo prints if warp, which nothing here uses, is missing; print all else."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        yield
    for line in printed.getvalue().splitlines():
        if not line.startswith(("Failed to import warp:", "Failed to import mujoco_warp:")):
            print(line)


def contact_force(sys: Any, state: Any) -> Array:
    """Return the forces (qd_size,) of contacts and joint limits, as Brax's constraint.force."""
    if state.con_jac.shape[0] == 0:
        return jnp.zeros(sys.qd_size())
    response = state.con_jac @ state.mass_mx_inv  # of the joints to a force at each constraint
    b = response @ state.qf_smooth - state.con_aref
    product = _product(state.con_jac, response, state.con_diag)
    x = solve_non_negative(
        product, b, max_iterations=sys.solver_iterations, max_halvings=sys.solver_maxls
    )
    return state.con_jac.T @ x


def _product(jacobian: Array, response: Array, diagonal: Array) -> _Product:
    """Return the product with a = response jacobianᵀ + diagonal, which is symmetric."""
    constraints, joints = jacobian.shape
    if constraints > 2 * joints:  # then a's factors are smaller than a
        return lambda rows: (rows @ jacobian) @ response.T + rows * diagonal
    a = response @ jacobian.T + jnp.diag(diagonal)
    return lambda rows: rows @ a


class _SearchState(NamedTuple):
    x: Array
    residual: Array  # a x + b
    ahead: Array  # x moved on by its momentum: where the next gradient is taken
    residual_ahead: Array
    momentum: Array
    step_size: Array  # the largest that the next iteration tries
    error: Array


def solve_non_negative(
    product: _Product, b: Array, *, max_iterations: int, max_halvings: int
) -> Array:
    """Minimise |a x + b|² over x ≥ 0 from x = 0 by FISTA.

    `product` multiplies rows by a, which must be symmetric.
    """
    zero, one = jnp.zeros_like(b), jnp.ones((), b.dtype)
    start = _SearchState(zero, b, zero, b, one, one, jnp.full((), jnp.inf, b.dtype))

    def iterate(_: Array, search: _SearchState) -> _SearchState:
        new = _iteration(product, b, search, max_halvings)
        unfinished = search.error > _TOLERANCE
        return jax.tree.map(lambda n, o: jnp.where(unfinished, n, o), new, search)

    return jax.lax.fori_loop(0, max_iterations, iterate, start).x


def _iteration(
    product: _Product, b: Array, search: _SearchState, max_halvings: int
) -> _SearchState:
    gradient = product(search.residual_ahead)
    step_sizes = search.step_size * 0.5 ** jnp.arange(max_halvings + 1, dtype=b.dtype)
    candidates = jnp.maximum(search.ahead[None] - jnp.outer(step_sizes, gradient), 0)
    moved = candidates - search.ahead[None]
    residuals = product(candidates) + b[None]
    rise = _halved_squares(residuals) - _halved_squares(search.residual_ahead)
    # A step is short enough if the loss falls as its gradient predicts, up to the curvature.
    allowed = step_sizes * (moved @ gradient) + _halved_squares(moved)
    too_long = step_sizes * rise > allowed + jnp.finfo(b.dtype).eps
    # The first that is short enough; the last if none is.
    chosen = jnp.argmin(too_long.at[-1].set(False))
    x, residual, step_size = candidates[chosen], residuals[chosen], step_sizes[chosen]
    momentum = 0.5 * (1 + jnp.sqrt(1 + 4 * search.momentum**2))
    extrapolation = (search.momentum - 1) / momentum
    change = x - search.x
    next_step_size = jnp.where(step_size <= _MIN_STEP_SIZE, 1.0, 2 * step_size)
    return _SearchState(
        x=x,
        residual=residual,
        ahead=x + extrapolation * change,
        # Residuals are linear in x: this one needs no product of its own.
        residual_ahead=residual + extrapolation * (residual - search.residual),
        momentum=momentum,
        step_size=next_step_size,
        error=jax.lax.stop_gradient(jnp.linalg.norm(change) / next_step_size),
    )


def _halved_squares(rows: Array) -> Array:
    return 0.5 * jnp.sum(rows**2, axis=-1)
