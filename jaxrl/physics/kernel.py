"""GPU kernels for small systems of equations: one environment is one program, held in registers.

XLA makes dozens of kernels of MuJoCo's solver, each of which reads and writes the matrices of all
environments, and waits for the slowest environment after every iteration. Here each environment
iterates as often as it needs. Both functions are written for one environment; vmap adds the others
as the grid of the kernel.
"""

import functools
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


def solve_constraints(
    problem: Problem, iterations: int, line_iterations: int, *, interpret: bool = False
) -> Solution:
    """Solve as `newton.solve` does, in one kernel."""
    rows, dofs = problem.jacobian.shape
    parts, structure = jax.tree.flatten(problem)
    shapes = [part.shape for part in parts]
    results = ((dofs,), (dofs,), (rows,))

    def kernel(*refs: Any) -> None:
        sources, targets = refs[: len(parts)], refs[len(parts) :]
        loaded = [_load(ref, shape) for ref, shape in zip(sources, shapes, strict=True)]
        here = structure.unflatten(loaded)
        here = here._replace(always_active=here.always_active != 0)
        solution = newton.solve(here, iterations, line_iterations, _tiles(dofs))
        for ref, value, shape in zip(targets, solution, results, strict=True):
            _store(ref, value, shape)

    dtype = problem.jacobian.dtype
    solution = pl.pallas_call(
        kernel,
        out_shape=tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in results),
        interpret=interpret,
        compiler_params=_settings(rows, dofs),
        name="solve_constraints",
    )(*(part.astype(dtype).reshape(part.shape or (1,)) for part in parts))
    return Solution(*solution)


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
        compiler_params=_settings(shape[0], shape[0]),
        name="solve_positive",
    )(matrix, vector)


def _settings(rows: int, columns: int) -> triton.CompilerParams:
    """Return as many warps as the largest tile needs; sums are fastest within one."""
    size = padded(rows) * padded(columns)
    return triton.CompilerParams(num_warps=max(1, min(8, size // 2048)), num_stages=1)


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
    index, exists = _indices(shape)
    triton.store(ref.at[index], value, mask=exists)


def _tiles(dofs: int) -> newton.Algebra:
    """Linear algebra on padded tiles; sums over an axis take the place of products."""

    def hessian(jacobian: Array, weights: Array, mass: Array) -> Array:
        weighted = jacobian * weights[:, None]
        return mass + triton.dot(weighted, jacobian, trans_a=True, allow_tf32=False)

    return newton.Algebra(
        rows=lambda matrix, vector: jnp.sum(matrix * vector[None, :], axis=1),
        columns=lambda matrix, vector: jnp.sum(matrix * vector[:, None], axis=0),
        hessian=hessian,
        solve=functools.partial(_eliminate, dofs=dofs),
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
