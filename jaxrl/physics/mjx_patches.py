"""Replace functions of MJX by faster ones that compute the same.

- `solver.solve`: Newton's method for pyramidal cones.
- `smooth.solve_m`: accelerations from forces. It needs no factors, so `smooth.factor_m` is empty.
- `forward.implicit`: the implicit integrator, which solves a system of its own.
- `constraint`: the rows of limits and of contacts, elementwise.
- `support.xfrc_accumulate`: forces on bodies, without Jacobians.
- `math`: products of quaternions and of spatial vectors, in fewer kernels.
- `smooth.kinematics`, `com_pos`, `com_vel`: on GPUs, their results are computed once, and the
  motions of degrees of freedom for the whole model at once.

On a GPU the first three are one kernel each, or three, without loops of unknown length: all
substeps fit into one CUDA graph.
Models with another solver or cone, with sparse matrices, or larger than a kernel holds, use MJX's
own functions.
"""

# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportFunctionMemberAccess=false
# MuJoCo is compiled and has no type stubs.

import contextlib
import contextvars
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
from mujoco import mjx
from mujoco.mjx._src import constraint, derivative, forward, math, sensor, smooth, solver, support

from jaxrl.physics import constraint_rows, dofs, generalized, kernel, newton, spatial
from jaxrl.types import Array

_MAX_DOFS = 64
_MAX_ROWS = 256
# Elements of the padded Jacobian. With 8,192 (120 rows, 34 degrees of freedom, one iteration) our
# kernels take 0.3 times as long as MJX's solver; more were not measured.
_MAX_ELEMENTS = 8192

_SPATIAL = (
    *("rotate", "quat_mul", "quat_to_mat", "axis_angle_to_quat"),
    *("motion_cross", "motion_cross_force", "inert_mul"),
)
# Kernels on GPUs, or the same functions in plain JAX, or MJX's own.
Functions = Literal["kernels", "plain", "stock"]
_chosen: contextvars.ContextVar[Functions] = contextvars.ContextVar("physics", default="kernels")


@contextlib.contextmanager
def use(functions: Functions) -> Iterator[None]:
    """Trace physics with other functions than the default, kernels."""
    token = _chosen.set(functions)
    try:
        yield
    finally:
        _chosen.reset(token)


def install() -> None:
    """Let MJX call these functions instead of its own."""
    for module, name, replacement in (
        (solver, "solve", _solve),
        (smooth, "factor_m", _factor_m),
        (smooth, "solve_m", _solve_m),
        (forward, "implicit", _implicit),
        (constraint, "_efc_limit_slide_hinge", constraint_rows.limits),
        (constraint, "_efc_contact_frictionless", constraint_rows.frictionless),
        (constraint, "_efc_contact_pyramidal", constraint_rows.pyramids),
        (support, "xfrc_accumulate", generalized.applied),
        (smooth, "kinematics", _kinematics),
        (smooth, "com_pos", _com_pos),
        (smooth, "com_vel", _com_vel),
    ):
        _replace(module, name, replacement, _choose)
    for name in _SPATIAL:
        _replace(math, name, getattr(spatial, name), _choose_math)


def _replace(module: Any, name: str, replacement: Callable, choose: Callable) -> None:
    """Replace a function once, also where `mjx` exports it."""
    own = getattr(module, name)
    if not hasattr(own, "stock"):
        patched = choose(replacement, own)
        setattr(module, name, patched)
        if hasattr(mjx, name):
            setattr(mjx, name, patched)


def _choose_math(replacement: Callable, own: Callable) -> Callable:
    @functools.wraps(own)
    def chosen(*arguments: Array) -> Array:
        return (own if _chosen.get() == "stock" else replacement)(*arguments)

    chosen.stock = own  # type: ignore[attr-defined]
    return chosen


def _choose(replacement: Callable, own: Callable) -> Callable:
    @functools.wraps(own)
    def chosen(m: mjx.Model, d: mjx.Data, *arguments: Any) -> Any:
        ours = _chosen.get() != "stock" and _dense(m)
        if ours and (result := replacement(m, d, *arguments)) is not None:
            return result
        return own(m, d, *arguments)

    chosen.stock = own  # type: ignore[attr-defined]
    return chosen


def substeps(m: mjx.Model, d: mjx.Data, ctrl: Array, number: int) -> mjx.Data:
    """Apply controls for `n_substeps` steps of physics; only the last one computes sensors."""
    read = m.nsensor and not m.opt.disableflags & mjx.DisableBit.SENSOR and number > 1
    if not read or _chosen.get() == "stock":
        step = functools.partial(mjx.step, m)
        return jax.lax.scan(lambda d, _: (step(d.replace(ctrl=ctrl)), None), d, length=number)[0]
    blind = m.tree_replace({"opt.disableflags": m.opt.disableflags | mjx.DisableBit.SENSOR})

    def once(carried: tuple, _: None) -> tuple:
        before = carried[0].replace(ctrl=ctrl)
        after = mjx.step(blind, before)
        return (after, before.qpos, before.qvel, before.act), None

    (d, *moved), _ = jax.lax.scan(once, (d, d.qpos, d.qvel, d.act), length=number)
    # Sensors read what the last step began with.
    seen = d.replace(**dict(zip(("qpos", "qvel", "act"), moved, strict=True)))
    for read_sensors in (sensor.sensor_pos, sensor.sensor_vel, sensor.sensor_acc):
        seen = read_sensors(m, seen)
    return d.replace(sensordata=seen.sensordata)


def _solve(m: mjx.Model, d: mjx.Data) -> mjx.Data | None:
    option = m.opt
    supported = (
        option.solver == mjx.SolverType.NEWTON
        and option.cone == mjx.ConeType.PYRAMIDAL
        and 0 < d._impl.efc_J.shape[0] <= _MAX_ROWS
    )
    if not supported:
        return None
    if kernel.elements(*d._impl.efc_J.shape) <= _MAX_ELEMENTS or _chosen.get() == "plain":
        return _solve_by_newton(m, d)
    by_newton = functools.partial(_solve_by_newton, m)
    by_mjx = functools.partial(solver.solve.stock, m)
    return jax.lax.platform_dependent(d, cuda=by_mjx, default=by_newton)


def _solve_by_newton(m: mjx.Model, d: mjx.Data) -> mjx.Data:
    option = m.opt
    counts = {
        "iterations": int(option.iterations),
        "line_iterations": int(option.ls_iterations),
    }
    solution = _on_gpu_or_elsewhere(
        functools.partial(kernel.solve_constraints, **counts),
        functools.partial(newton.solve, **counts, algebra=newton.PLAIN),
        _problem(m, d),
    )
    return d.tree_replace(
        {
            "qacc": solution.qacc,
            "qfrc_constraint": solution.qfrc_constraint,
            "_impl.efc_force": solution.efc_force,
        }
    )


def _kinematics(m: mjx.Model, d: mjx.Data) -> mjx.Data:
    d = smooth.kinematics.stock(m, d)
    return _stored(d, "xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis")


def _com_pos(m: mjx.Model, d: mjx.Data) -> mjx.Data:
    d = _stored(smooth.com_pos.stock(m, d), "subtree_com", "_impl.cinert")
    motions = functools.partial(dofs.motions, m)
    cdof = _on_gpu_or_elsewhere(motions, lambda d: d.cdof, d)
    return _stored(d.replace(cdof=cdof), "cdof")


def _com_vel(m: mjx.Model, d: mjx.Data) -> mjx.Data:
    d = _stored(smooth.com_vel.stock(m, d), "cvel")
    rates = functools.partial(dofs.motion_rates, m)
    cdof_dot = _on_gpu_or_elsewhere(rates, lambda d: d.cdof_dot, d)
    return _stored(d.replace(cdof_dot=cdof_dot), "cdof_dot")


def _stored(d: mjx.Data, *fields: str) -> mjx.Data:
    """On GPUs, keep XLA from computing these fields again wherever they are read.

    A permutation that is read by a permutation is computed several times for each element: kernels
    had up to 23,000 lines.
    """
    store = functools.partial(
        _on_gpu_or_elsewhere, jax.lax.optimization_barrier, lambda array: array
    )
    return d.tree_replace({field: store(operator.attrgetter(field)(d)) for field in fields})


def _factor_m(m: mjx.Model, d: mjx.Data) -> mjx.Data:
    return d


def _solve_m(m: mjx.Model, d: mjx.Data, x: Array) -> Array:
    return _solve_positive(d._impl.M, x)


def _implicit(m: mjx.Model, d: mjx.Data) -> mjx.Data | None:
    slope = derivative.deriv_smooth_vel(m, d)
    if slope is None:
        return None
    mass = d._impl.M - m.opt.timestep * slope
    qacc = _solve_positive(mass, d.qfrc_smooth + d.qfrc_constraint)
    return forward._advance(m, d, d.act_dot, qacc)


def _dense(m: mjx.Model) -> bool:
    return not support.is_sparse(m) and 0 < m.nv <= _MAX_DOFS


def _problem(m: mjx.Model, d: mjx.Data) -> newton.Problem:
    impl, flags = d._impl, m.opt.disableflags
    loses = m._impl.dof_hasfrictionloss.any() or m._impl.tendon_hasfrictionloss.any()
    loses = loses and not flags & mjx.DisableBit.FRICTIONLOSS
    return newton.Problem(
        jacobian=impl.efc_J,
        mass=impl.M,
        stiffness=impl.efc_D,
        aref=impl.efc_aref,
        friction_loss=impl.efc_frictionloss if loses else None,
        always_active=jnp.arange(impl.efc_J.shape[0]) < impl.ne + impl.nf,
        qfrc_smooth=d.qfrc_smooth,
        qacc_smooth=d.qacc_smooth,
        warm_start=None if flags & mjx.DisableBit.WARMSTART else d.qacc_warmstart,
        tolerance=jnp.asarray(m.opt.tolerance),
        line_tolerance=jnp.asarray(m.opt.ls_tolerance),
    )


def _solve_positive(matrix: Array, vector: Array) -> Array:
    return _on_gpu_or_elsewhere(kernel.solve_positive, newton.solve_positive, matrix, vector)


def _on_gpu_or_elsewhere(kernel: Callable, plain: Callable, *arguments: Any) -> Any:
    if _chosen.get() == "plain":
        return plain(*arguments)
    return jax.lax.platform_dependent(*arguments, cuda=kernel, default=plain)
