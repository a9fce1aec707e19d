"""MuJoCo's Newton solver for constraint forces with pyramidal friction cones, for one environment.

The accelerations minimise a convex function: the distance from the unconstrained ones, weighted by
the mass matrix, and a penalty for each violated row of the constraints. MJX's solver does the same.
Two things differ. The line search ends when it has converged; vmapped, MJX's always makes all of
its iterations. And everything is written in operations that a GPU kernel can do in registers: see
`kernel.py`, which runs these functions with a linear algebra of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array

_MIN_VALUE = 1e-15  # MuJoCo's mjMINVAL


class Problem(NamedTuple):
    """What a step asks of the solver: r rows of constraints, v degrees of freedom."""

    jacobian: Array  # (r, v)
    mass: Array  # (v, v)
    stiffness: Array  # (r,): efc_D
    aref: Array  # (r,): the acceleration that each row asks for
    friction_loss: Array | None  # (r,); None: the model has none
    always_active: Array  # (r,): rows of equalities and of friction loss
    qfrc_smooth: Array  # (v,)
    qacc_smooth: Array  # (v,)
    warm_start: Array | None  # (v,): accelerations of the last step; None: start without
    tolerance: Array  # ()
    line_tolerance: Array  # ()


class Solution(NamedTuple):
    """Accelerations, and the forces of the constraints on joints and in each row."""

    qacc: Array  # (v,)
    qfrc_constraint: Array  # (v,)
    efc_force: Array  # (r,)


class Algebra(NamedTuple):
    """Products with the problem's matrices."""

    rows: Callable[[Array, Array], Array]  # matrix (r, v), vector (v,): (r,)
    columns: Callable[[Array, Array], Array]  # matrix (r, v), vector (r,): (v,)
    # (J, weights, M, vector): the solution of (Jᵀ diag(weights) J + M) x = vector
    solve_hessian: Callable[[Array, Array, Array, Array], Array]
    trace: Callable[[Array], Array]
    loop: Callable[..., Any]  # (unfinished, iterate, start, max_iterations)
    line_loop: Callable[..., Any]


def solve_positive(matrix: Array, vector: Array) -> Array:
    """Return the solution of a symmetric positive definite system."""
    symmetric = (matrix + matrix.T) * 0.5
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(symmetric), vector)


def while_loop(unfinished: Callable, iterate: Callable, start: Any, max_iterations: int) -> Any:
    """Iterate while unfinished, which also counts the iterations."""
    del max_iterations
    return jax.lax.while_loop(unfinished, iterate, start)


PLAIN = Algebra(
    rows=lambda matrix, vector: matrix @ vector,
    columns=lambda matrix, vector: matrix.T @ vector,
    solve_hessian=lambda jacobian, weights, mass, vector: solve_positive(
        mass + (jacobian.T * weights[None, :]) @ jacobian, vector
    ),
    trace=jnp.trace,
    loop=while_loop,
    line_loop=while_loop,
)


class _Point(NamedTuple):
    """Accelerations, and what the solver knows of them."""

    qacc: Array
    ma: Array  # M qacc
    jaref: Array  # J qacc - aref
    force: Array
    qfrc: Array  # Jᵀ force
    gauss: Array  # weighted distance from the unconstrained accelerations
    cost: Array


class Iterate(NamedTuple):
    """What an iteration starts from."""

    point: _Point
    gradient: Array  # of the cost
    weights: Array  # of the rows in the Hessian; 0: inactive


class _Line(NamedTuple):
    """A step along the search direction: the cost there and its derivatives."""

    alpha: Array
    cost: Array
    slope: Array
    curvature: Array


def solve(problem: Problem, iterations: int, line_iterations: int, algebra: Algebra) -> Solution:
    """Return accelerations and forces by Newton's method, warm started."""
    first = start(problem, algebra)
    trace = _trace(problem, algebra)

    def unfinished(carried: tuple) -> Array:
        number, previous, here = carried
        improves = (previous - here.point.cost) / trace >= problem.tolerance
        steep = _norm(here.gradient) / trace >= problem.tolerance
        return (number < iterations) & improves & steep

    def iterate(carried: tuple) -> tuple:
        number, _, here = carried
        search = -algebra.solve_hessian(problem.jacobian, here.weights, problem.mass, here.gradient)
        moved = move(problem, here, search, line_iterations, algebra)
        return number + 1, here.point.cost, moved

    carried = (jnp.zeros((), jnp.int32), jnp.full_like(first.point.cost, jnp.inf), first)
    if iterations == 1:
        carried = iterate(carried)
    else:
        carried = algebra.loop(unfinished, iterate, carried, iterations)
    return solution(carried[2])


def start(problem: Problem, algebra: Algebra) -> Iterate:
    """Return the first iterate: the better one of unconstrained and last accelerations."""
    point = _evaluate(problem, problem.qacc_smooth, algebra)
    if problem.warm_start is not None:
        warm = _evaluate(problem, problem.warm_start, algebra)
        point = _where(warm.cost < point.cost, warm, point)
    return _iterate_at(problem, point)


def move(
    problem: Problem, here: Iterate, search: Array, line_iterations: int, algebra: Algebra
) -> Iterate:
    """Return the next iterate, found by a line search in the direction `search`."""
    trace = _trace(problem, algebra)
    point = _line_search(problem, here.point, search, trace, line_iterations, algebra)
    return _iterate_at(problem, point)


def solution(last: Iterate) -> Solution:
    """Return what the step needs of the last iterate."""
    return Solution(last.point.qacc, last.point.qfrc, last.point.force)


def _iterate_at(problem: Problem, point: _Point) -> Iterate:
    gradient = point.ma - problem.qfrc_smooth - point.qfrc
    weights = jnp.where(_active(problem, point.jaref), problem.stiffness, 0.0)
    return Iterate(point, gradient, weights)


def _trace(problem: Problem, algebra: Algebra) -> Array:
    return jnp.maximum(algebra.trace(problem.mass), _MIN_VALUE)


def _evaluate(problem: Problem, qacc: Array, algebra: Algebra) -> _Point:
    jaref = algebra.rows(problem.jacobian, qacc) - problem.aref
    return _forces(problem, qacc, algebra.columns(problem.mass, qacc), jaref, algebra)


def _forces(problem: Problem, qacc: Array, ma: Array, jaref: Array, algebra: Algebra) -> _Point:
    stiffness, loss = problem.stiffness, problem.friction_loss
    sliding, sliding_cost = jnp.zeros_like(jaref), jnp.zeros((), jaref.dtype)
    active = _active(problem, jaref)
    if loss is not None:
        below, above, limit = _sliding(problem, jaref)
        sliding = jnp.where(below, loss, 0.0) - jnp.where(above, loss, 0.0)
        costs = jnp.where(below, loss * (-0.5 * limit - jaref), 0.0)
        costs += jnp.where(above, loss * (-0.5 * limit + jaref), 0.0)
        sliding_cost = jnp.sum(costs)
    pull = jnp.where(active, stiffness * jaref, 0.0)
    force = sliding - pull
    gauss = 0.5 * jnp.sum((ma - problem.qfrc_smooth) * (qacc - problem.qacc_smooth))
    cost = 0.5 * jnp.sum(pull * jaref) + gauss + sliding_cost
    qfrc = algebra.columns(problem.jacobian, force)
    return _Point(qacc, ma, jaref, force, qfrc, gauss, cost)


def _active(problem: Problem, jaref: Array) -> Array:
    """Return which rows pull as springs do."""
    active = (jaref < 0) | problem.always_active
    if problem.friction_loss is None:
        return active
    below, above, _ = _sliding(problem, jaref)
    return active & ~below & ~above


def _sliding(problem: Problem, x: Array) -> tuple[Array, Array, Array]:
    """Return which joints slide against their friction, in which direction; and from where on."""
    stiffness, loss = problem.stiffness, problem.friction_loss
    assert loss is not None
    limit = loss / jnp.where(stiffness == 0, _MIN_VALUE, stiffness)
    return (x <= -limit) & (loss > 0), (x >= limit) & (loss > 0), limit


class _Ray(NamedTuple):
    """A search direction from a point; costs are c0 + c1 alpha + c2 alpha² piece by piece."""

    direction: Array
    mv: Array  # M direction
    jv: Array  # J direction
    gauss: tuple[Array, Array, Array]
    springs: tuple[Array, Array, Array]  # of each row


def _line_search(
    problem: Problem,
    point: _Point,
    search: Array,
    trace: Array,
    max_iterations: int,
    algebra: Algebra,
) -> _Point:
    """Move to the lowest cost along a direction, from a bracket that Newton steps make smaller."""
    ray = _ray(problem, point, search, algebra)

    def at(alpha: Array) -> _Line:
        return _line(problem, point, ray, alpha)

    origin = at(jnp.zeros((), search.dtype))
    flat_slope = _flat_slope(problem, ray, origin, trace)

    def flat(line: _Line) -> Array:
        return (jnp.abs(line.slope) < flat_slope) & (line.cost < origin.cost)

    def unfinished(carried: tuple) -> Array:
        number, low, high, changed = carried
        return (number < max_iterations) & changed & ~flat(low) & ~flat(high)

    def narrow(carried: tuple) -> tuple:
        number, low, high, _ = carried
        return (number + 1, *_narrow(low, high, at, flat))

    first = at(_newton_step(origin))
    descends = first.slope < origin.slope
    low, high = _where(descends, first, origin), _where(descends, origin, first)
    carried = (jnp.zeros((), jnp.int32), low, high, jnp.ones((), bool))
    _, low, high, _ = algebra.line_loop(unfinished, narrow, carried, max_iterations)
    improved = (low.cost < origin.cost) | (high.cost < origin.cost)
    alpha = jnp.where(low.cost < high.cost, low.alpha, high.alpha)
    alpha = jnp.where(improved, alpha, 0.0)
    qacc, ma = point.qacc + alpha * search, point.ma + alpha * ray.mv
    return _forces(problem, qacc, ma, point.jaref + alpha * ray.jv, algebra)


def _ray(problem: Problem, point: _Point, search: Array, algebra: Algebra) -> _Ray:
    mv = algebra.columns(problem.mass, search)
    jv = algebra.rows(problem.jacobian, search)
    stiffness, jaref = problem.stiffness, point.jaref
    gauss = (
        point.gauss,
        jnp.sum(search * (point.ma - problem.qfrc_smooth)),
        0.5 * jnp.sum(search * mv),
    )
    springs = (0.5 * stiffness * jaref**2, stiffness * jv * jaref, 0.5 * stiffness * jv**2)
    return _Ray(search, mv, jv, gauss, springs)


def _line(problem: Problem, point: _Point, ray: _Ray, alpha: Array) -> _Line:
    jaref, jv = point.jaref, ray.jv
    x = jaref + alpha * jv
    quadratic = [jnp.where((x < 0) | problem.always_active, row, 0.0) for row in ray.springs]
    if (loss := problem.friction_loss) is not None:
        below, above, limit = _sliding(problem, x)
        falling = (loss * (-0.5 * limit - jaref), -loss * jv, jnp.zeros_like(jv))
        rising = (loss * (-0.5 * limit + jaref), loss * jv, jnp.zeros_like(jv))
        quadratic = [
            jnp.where(below, f, jnp.where(above, r, q))
            for f, r, q in zip(falling, rising, quadratic, strict=True)
        ]
    c0, c1, c2 = (g + jnp.sum(q) for g, q in zip(ray.gauss, quadratic, strict=True))
    curvature = jnp.where(c2 == 0, _MIN_VALUE, 2 * c2)
    return _Line(alpha, alpha * alpha * c2 + alpha * c1 + c0, 2 * alpha * c2 + c1, curvature)


def _flat_slope(problem: Problem, ray: _Ray, origin: _Line, trace: Array) -> Array:
    """Return the slope that counts as zero: the tolerance, or what rounding alone makes."""
    gauss, search = ray.gauss, ray.direction
    costs = jnp.maximum(origin.cost - gauss[0], 0.0)
    curvatures = jnp.maximum(0.5 * origin.curvature - gauss[2], 0.0)
    rounding = 8 * jnp.finfo(search.dtype).eps
    noise = rounding * (2.0 * jnp.sqrt(costs * curvatures) + jnp.abs(gauss[1]))
    return jnp.maximum(problem.tolerance * problem.line_tolerance * _norm(search) * trace, noise)


def _newton_step(line: _Line) -> Array:
    return line.alpha - line.slope / line.curvature


def _narrow(
    low: _Line, high: _Line, at: Callable[[Array], _Line], flat: Callable[[_Line], Array]
) -> tuple[_Line, _Line, Array]:
    """Return a smaller bracket, and whether it changed and needs to become smaller still."""
    tried = (
        at(_newton_step(low)),
        at(_newton_step(high)),
        at(0.5 * (low.alpha + high.alpha)),
    )
    from_low, from_high, middle = tried
    low, low_changed = _closest(low, (from_low, middle, from_high))
    # A step from below that crosses the minimum makes a bracket of both signs.
    crossed = (high.slope < 0) & (from_high.slope > 0)
    inside = _between(high, from_high) | crossed
    high = _where(inside, from_high, high)
    high, high_changed = _closest(high, (middle, from_low))
    best, converged = _lowest(tried, flat)
    low, high = _where(converged, best, low), _where(converged, best, high)
    return low, high, (low_changed | inside | high_changed) & ~converged


def _between(end: _Line, line: _Line) -> Array:
    """Whether a slope has the sign of an end's, and is closer to zero."""
    below = (end.slope < line.slope) & (line.slope < 0)
    return below | ((end.slope > line.slope) & (line.slope > 0))


def _closest(end: _Line, lines: tuple[_Line, ...]) -> tuple[_Line, Array]:
    changed = jnp.zeros((), bool)
    for line in lines:
        closer = _between(end, line)
        end, changed = _where(closer, line, end), changed | closer
    return end, changed


def _lowest(lines: tuple[_Line, ...], flat: Callable[[_Line], Array]) -> tuple[_Line, Array]:
    best, found = lines[0], flat(lines[0])
    for line in lines[1:]:
        better = flat(line) & (~found | (line.cost < best.cost))
        best, found = _where(better, line, best), found | better
    return best, found


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda y, n: jnp.where(condition, y, n), yes, no)


def _norm(vector: Array) -> Array:
    return jnp.sqrt(jnp.sum(vector * vector))
