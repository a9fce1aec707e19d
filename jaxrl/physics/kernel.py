"""GPU kernels for small systems of equations: one program of the grid is one environment.

XLA makes dozens of kernels of MuJoCo's solver, each of which reads and writes the matrices of all
environments, and waits for the slowest environment after every iteration. Here each environment
iterates as often as it needs, in registers. All functions are written for one environment; vmap
adds the others as the grid of the kernel.

What a program can hold decides how fast it is: registers that spill into memory make it several
times slower. Therefore the product JᵀDJ reads J again, a few rows at a time, programs have few
threads, and what is large is solved by three smaller kernels.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxrl.physics import newton
from jaxrl.physics.newton import Problem, Solution
from jaxrl.types import Array

_SMALLEST = 16  # sides of the matrices that Triton can multiply
_PIECE = 16  # rows of J that are multiplied at a time
# Elements of the padded Jacobian up to which one kernel is faster than three. With 2,048 (40 rows,
# 18 degrees of freedom) it takes 76 µs for 2,048 environments, three take 62.
_ONE_KERNEL = 1024


def solve_constraints(
    problem: Problem, iterations: int, line_iterations: int, *, interpret: bool = False
) -> Solution:
    """Solve as `newton.solve` does, in one kernel or in three."""
    shape = problem.jacobian.shape
    if iterations == 1 and elements(*shape) > _ONE_KERNEL:
        return _solve_in_three(problem, line_iterations, interpret)
    solve = functools.partial(newton.solve, iterations=iterations, line_iterations=line_iterations)
    return _run(solve, problem, interpret=interpret, name="solve_constraints")


def _solve_in_three(problem: Problem, line_iterations: int, interpret: bool) -> Solution:
    """Make one iteration of Newton's method; J is in registers in the first and the last kernel."""
    here = _run(newton.start, problem, interpret=interpret, name="solver_start")
    search = -_solve_hessian(
        problem.jacobian, here.weights, problem.mass, here.gradient, interpret=interpret
    )

    def finish(
        problem: Problem, here: newton.Iterate, search: Array, algebra: newton.Algebra
    ) -> Solution:
        return newton.solution(newton.move(problem, here, search, line_iterations, algebra))

    return _run(finish, problem, here, search, interpret=interpret, name="solver_move")


def _run(function: Callable, problem: Problem, *others: Any, interpret: bool, name: str) -> Any:
    """Call `function(problem, *others, algebra=...)` as a kernel."""
    arguments = (problem, *others)
    parts, structure = jax.tree.flatten(arguments)
    results = jax.eval_shape(functools.partial(function, algebra=newton.PLAIN), *arguments)
    shapes, result_structure = jax.tree.flatten(results)
    rows, dofs = problem.jacobian.shape
    dtype = problem.jacobian.dtype
    scratch = jax.ShapeDtypeStruct((rows,), dtype)  # weights of rows

    def kernel(*refs: Any) -> None:
        sources, targets, weights_ref = refs[: len(parts)], refs[len(parts) : -1], refs[-1]
        loaded = [_load(ref, part.shape) for ref, part in zip(sources, parts, strict=True)]
        loaded = [
            value != 0 if part.dtype == bool else value
            for value, part in zip(loaded, parts, strict=True)
        ]
        jacobian_ref = sources[0]  # the first field of the problem

        def solve_hessian(_: Array, weights: Array, mass: Array, vector: Array) -> Array:
            # Threads read weights that others computed.
            if not interpret:
                triton.debug_barrier()
            _store(weights_ref, weights, (rows,))
            if not interpret:
                triton.debug_barrier()
            hessian = _hessian(jacobian_ref, weights_ref, mass, rows, dofs)
            return _eliminate(hessian, vector, dofs)

        found = function(*structure.unflatten(loaded), algebra=_tiles(solve_hessian))
        for ref, value, shape in zip(targets, jax.tree.leaves(found), shapes, strict=True):
            _store(ref, value, shape.shape)

    *found, _ = pl.pallas_call(
        kernel,
        out_shape=(*map(_at_least_1d, shapes), scratch),
        interpret=interpret,
        compiler_params=_settings(elements(rows, dofs)),
        name=name,
    )(*(part.astype(dtype).reshape(part.shape or (1,)) for part in parts))
    found = [value.reshape(shape.shape) for value, shape in zip(found, shapes, strict=True)]
    return result_structure.unflatten(found)


def _at_least_1d(shape: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape or (1,), shape.dtype)


def _solve_hessian(
    jacobian: Array, weights: Array, mass: Array, vector: Array, *, interpret: bool
) -> Array:
    """Return the solution of (Jᵀ diag(weights) J + M) x = vector, in one kernel."""
    rows, dofs = jacobian.shape

    def kernel(
        jacobian_ref: Any, weights_ref: Any, mass_ref: Any, vector_ref: Any, out_ref: Any
    ) -> None:
        hessian = _hessian(jacobian_ref, weights_ref, _load(mass_ref, mass.shape), rows, dofs)
        _store(out_ref, _eliminate(hessian, _load(vector_ref, (dofs,)), dofs), (dofs,))

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(vector.shape, vector.dtype),
        interpret=interpret,
        compiler_params=_settings(elements(dofs, dofs)),
        name="solve_hessian",
    )(jacobian, weights, mass, vector)


def solve_positive(matrix: Array, vector: Array, *, interpret: bool = False) -> Array:
    """Return the solution of a symmetric positive definite system, in one kernel."""
    shape = vector.shape

    def kernel(matrix_ref: Any, vector_ref: Any, out_ref: Any) -> None:
        matrix, vector = _load(matrix_ref, shape * 2), _load(vector_ref, shape)
        _store(out_ref, _eliminate(matrix, vector, *shape), shape)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(shape, vector.dtype),
        interpret=interpret,
        compiler_params=_settings(elements(*shape * 2)),
        name="solve_positive",
    )(matrix, vector)


def _settings(size: int) -> triton.CompilerParams:
    """Return the settings of a kernel whose largest tile has `size` elements.

    Sums are fastest within one warp, which holds 4,096 elements: 128 in each of its threads.
    """
    return triton.CompilerParams(num_warps=max(1, size // 4096), num_stages=1)


def elements(*shape: int) -> int:
    """Return the number of elements of a tile that holds an array of this shape."""
    return math.prod(map(padded, shape))


def padded(size: int) -> int:
    """Return the side of the smallest tile that holds `size` elements along it."""
    return max(_SMALLEST, pl.next_power_of_2(size))


def _indices(shape: Sequence[int]) -> tuple[tuple[Array, ...], Array]:
    """Return the indices of a padded tile along each axis, and which of its elements exist."""
    sizes = [padded(size) for size in shape]
    axes = [jnp.arange(size) for size in sizes]
    if len(shape) == 1:
        return (axes[0],), axes[0] < shape[0]
    rows, columns = axes[0][:, None], axes[1][None, :]
    return (rows, columns), (rows < shape[0]) & (columns < shape[1])


def _load(ref: Any, shape: Sequence[int]) -> Array:
    if not shape:
        return ref[0]
    index, exists = _indices(shape)
    return triton.load(ref.at[index], mask=exists, other=0.0)


def _store(ref: Any, value: Array, shape: Sequence[int]) -> None:
    if not shape:
        ref[0] = value
        return
    index, exists = _indices(shape)
    triton.store(ref.at[index], value, mask=exists)


def _hessian(jacobian_ref: Any, weights_ref: Any, mass: Array, rows: int, dofs: int) -> Array:
    """Return Jᵀ diag(weights) J + M; a few rows of J at a time are read from memory."""
    columns = jnp.arange(padded(dofs))[None, :]

    def add(piece: Array, hessian: Array) -> Array:
        numbers = piece * _PIECE + jnp.arange(_PIECE)
        exist = numbers < rows
        weights = triton.load(weights_ref.at[numbers], mask=exist, other=0.0)
        jacobian = triton.load(
            jacobian_ref.at[numbers[:, None], columns],
            mask=exist[:, None] & (columns < dofs),
            other=0.0,
        )
        weighted = jacobian * weights[:, None]
        return hessian + triton.dot(weighted, jacobian, trans_a=True, allow_tf32=False)

    return jax.lax.fori_loop(0, pl.cdiv(rows, _PIECE), add, mass)


def _tiles(solve_hessian: Callable[[Array, Array, Array, Array], Array]) -> newton.Algebra:
    """Linear algebra on padded tiles; sums over an axis take the place of products."""
    return newton.Algebra(
        rows=lambda matrix, vector: jnp.sum(matrix * vector[None, :], axis=1),
        columns=lambda matrix, vector: jnp.sum(matrix * vector[:, None], axis=0),
        solve_hessian=solve_hessian,
        trace=_trace,
        loop=_until_finished,
        line_loop=newton.while_loop,
    )


def _until_finished(
    unfinished: Callable, iterate: Callable, start: Any, max_iterations: int
) -> Any:
    """Iterate as `newton.while_loop` does: XLA's Triton crashes on nested while-loops."""

    def step(_: Array, carried: Any) -> Any:
        return jax.lax.cond(unfinished(carried), iterate, lambda same: same, carried)

    return jax.lax.fori_loop(0, max_iterations, step, start)


def _trace(matrix: Array) -> Array:
    numbers = jnp.arange(len(matrix))
    return jnp.sum(jnp.where(numbers[:, None] == numbers[None, :], matrix, 0.0))


def _eliminate(matrix: Array, vector: Array, dofs: int) -> Array:
    """Solve a symmetric positive definite system by elimination, which then needs no pivoting.

    What is left of the matrix after each step is symmetric: its next row is also its next column.
    Rows are cheap to read, columns are not (they lie across the threads of a warp).
    """
    numbers = jnp.arange(len(vector))

    def row_of(matrix: Array, k: Array) -> Array:
        return jnp.sum(jnp.where((numbers == k)[:, None], matrix, 0.0), axis=0)

    def at(vector: Array, k: Array) -> Array:
        return jnp.sum(jnp.where(numbers == k, vector, 0.0))

    def forward(k: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, vector = carried
        row = row_of(matrix, k)
        factor = jnp.where(numbers > k, row / at(row, k), 0.0)
        return matrix - factor[:, None] * row[None, :], vector - factor * at(vector, k)

    def backward(i: Array, vector: Array) -> Array:
        k = dofs - 1 - i
        row = row_of(matrix, k)
        known = jnp.sum(jnp.where(numbers > k, row * vector, 0.0))
        return jnp.where(numbers == k, (vector - known) / at(row, k), vector)

    matrix, vector = jax.lax.fori_loop(0, dofs - 1, forward, (matrix, vector))
    return jax.lax.fori_loop(0, dofs, backward, vector)
