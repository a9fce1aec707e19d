"""Our functions compute what MJX's own and MuJoCo's do: forces, steps, sensors."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import export
from mujoco import mjx
from mujoco.mjx._src import forward, math, smooth, support

from jaxrl.config import presets
from jaxrl.envs import factory
from jaxrl.envs.brax_patches import import_brax
from jaxrl.physics import dofs, kernel, mjx_patches, newton
from jaxrl.physics.precision import physics as physics_settings
from jaxrl.programs import compiler

import_brax()

# Contacts, joint limits, friction loss and a weld: every kind of row.
XML = """
<mujoco>
  <option timestep="0.005" iterations="{iterations}" ls_iterations="10" cone="{cone}"
          solver="{solver}" integrator="{integrator}"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="arm" pos="0.5 0 0.6">
      <joint name="shoulder" type="hinge" axis="0 1 0" range="-40 40" limited="true"
             damping="0.2" frictionloss="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="0.5" contype="0"
            conaffinity="0"/>
      <body name="hand" pos="0.3 0 0">
        <joint name="elbow" type="hinge" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="0.3" contype="0"
              conaffinity="0"/>
        <site name="tip" pos="0.3 0 0"/>
      </body>
    </body>
    {bodies}
  </worldbody>
  {equality}
  <actuator><motor joint="elbow" gear="1"/></actuator>
  <sensor>
    <jointpos joint="elbow"/><jointvel joint="shoulder"/><framepos objtype="site" objname="tip"/>
    <accelerometer site="tip"/><velocimeter site="tip"/>
  </sensor>
</mujoco>
"""
# In contact with the floor, and welded to each other.
BODIES = """
    <body name="log" pos="0 0 0.12">
      <freejoint/>
      <geom type="capsule" fromto="-0.2 0 0 0.2 0 0" size="0.1" mass="1" conaffinity="0"/>
    </body>
    <body name="ball" pos="0.8 0.5 0.3">
      <freejoint/>
      <geom type="sphere" size="0.05" mass="0.2" conaffinity="0"/>
    </body>
    <body name="held" pos="0.8 0.6 0.3">
      <freejoint/>
      <geom type="sphere" size="0.04" mass="0.1" contype="0" conaffinity="0"/>
    </body>
"""
WELD = '<equality><weld body1="ball" body2="held"/></equality>'
NUMBER = 6


def model_of(arm_only=False, **options):
    settings = {"solver": "Newton", "cone": "pyramidal", "integrator": "Euler", "iterations": 4}
    bodies, equality = ("", "") if arm_only else (BODIES, WELD)
    xml = XML.format(bodies=bodies, equality=equality, **settings | options)
    model = mujoco.MjModel.from_xml_string(xml)
    return model, mjx.put_model(model)


MODEL, PHYSICS = model_of(iterations=20)


def states(physics=PHYSICS):
    """States with the log in the floor, the joint beyond its limit and moving bodies."""
    random = np.random.default_rng(0)
    data = mjx.make_data(physics)
    qpos = np.tile(np.asarray(data.qpos), (NUMBER, 1))
    qpos[:, 4:5] = random.uniform(0.09, 0.105, (NUMBER, 1))  # the log's height, where there is one
    qpos[:, 0] = random.uniform(-0.8, 0.8, NUMBER)
    qvel = random.normal(0, 0.5, (NUMBER, physics.nv))
    warm = random.normal(0, 3.0, (NUMBER, physics.nv))
    return jax.vmap(lambda q, v, w: data.replace(qpos=q, qvel=v, qacc_warmstart=w))(
        *(jnp.asarray(x, jnp.float32) for x in (qpos, qvel, warm))
    )


def kind(name):
    return mjx_patches.use("stock" if name == "stock" else "kernels")


@pytest.fixture(scope="module")
def stock():
    def run(data):
        with kind("stock"), physics_settings():
            return mjx.forward(PHYSICS, data)

    return jax.jit(jax.vmap(run))(states())


def problem(data):
    return mjx_patches._problem(PHYSICS, data)


def error(value, reference):
    scale = np.linalg.norm(reference, axis=-1) + 1e-3
    return np.max(np.linalg.norm(value - reference, axis=-1) / scale)


# Bodies that touch each other and the floor: without friction, then sliding, twisting and rolling.
TOUCHING = "".join(
    f"""<body pos="{x} 0 {z}"><freejoint/>
    <geom size="0.1" condim="{dimensions}" friction="0.7 0.05 0.02" margin="0.01"/>
    <body pos="0 0.15 0"><joint axis="1 0 0" range="-0.01 0.5" limited="true"/>
    <geom size="0.05" condim="{dimensions}"/></body>
    </body>"""
    for x, z, dimensions in ((0, 0.09, 3), (0, 0.27, 3), (1, 0.09, 4), (2, 0.09, 6), (3, 0.09, 1))
)


@pytest.fixture(scope="module")
def touching():
    """Return the model of `TOUCHING`, and states of it."""
    model = mujoco.MjModel.from_xml_string(
        f"""<mujoco><option integrator="Euler"/><worldbody>
        <geom type="plane" size="5 5 1" condim="1"/>{TOUCHING}
        <body pos="4 0 0"><joint type="slide" axis="0 0 1" limited="true" range="0 1"/>
        <geom size="0.05" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""
    )
    random = np.random.default_rng(1)
    qpos = model.qpos0 + random.normal(0, 0.02, (NUMBER, model.nq))
    return mjx.put_model(model), jnp.asarray(qpos, jnp.float32)


def test_rows_of_contacts_and_limits_equal_those_of_mjx(touching):
    physics, states = touching
    start = mjx.make_data(physics)

    def rows(name):
        def of(qpos):
            with kind(name), physics_settings():
                data = mjx.kinematics(physics, start.replace(qpos=qpos))
                data = mjx.collision(physics, mjx.com_pos(physics, data))
                data = mjx.make_constraint(physics, data)._impl
                return data.efc_J, data.efc_D, data.efc_aref, data.efc_pos

        return jax.jit(jax.vmap(of))(states)

    found, wanted = rows("kernels"), rows("stock")
    assert set(np.asarray(mjx.make_data(physics)._impl.contact.dim)) == {1, 3, 4, 6}
    active = np.abs(wanted[0]).sum(axis=-1) > 0
    assert active[:, :6].any(axis=0).all(), "each limit is reached in one of the states"
    assert active[:, 6:].sum() > 15 * NUMBER
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *(("rotate", (3, 4)), ("quat_mul", (4, 4)), ("quat_to_mat", (4,))),
        *(("motion_cross", (6, 6)), ("motion_cross_force", (6, 6)), ("inert_mul", (10, 6))),
    ],
)
def test_spatial_products_equal_those_of_mjx(name, sizes):
    ours = getattr(math, name)
    random = np.random.default_rng(0)
    arguments = [jnp.asarray(random.normal(size=size), jnp.float32) for size in sizes]
    np.testing.assert_allclose(ours(*arguments), ours.stock(*arguments), rtol=1e-5, atol=1e-5)


def test_rotation_about_an_axis_equals_that_of_mjx():
    axis, ours = jnp.asarray([0.6, 0.0, -0.8]), math.axis_angle_to_quat
    np.testing.assert_allclose(ours(axis, 2.0), ours.stock(axis, 2.0), rtol=1e-6)


def test_forces_on_bodies_push_degrees_of_freedom_as_in_mjx(touching):
    physics, states = touching
    start = mjx.make_data(physics)
    forces = jax.random.normal(jax.random.key(0), (NUMBER, physics.nbody, 6))

    def both(qpos, forces):
        data = mjx.kinematics(physics, start.replace(qpos=qpos, xfrc_applied=forces))
        data = mjx.com_pos(physics, data)
        applied = support.xfrc_accumulate
        return applied(physics, data), applied.stock(physics, data)

    with physics_settings():
        ours, theirs = jax.jit(jax.vmap(both))(states, forces)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert np.abs(theirs).min(axis=0).max() > 0.1


# Every type of joint: below one another, several in a body, in several trees.
JOINTS = """
<mujoco><worldbody>
  <body><freejoint/><geom size="0.1" pos="0.1 0 0"/>
    <body pos="0.2 0.1 0"><joint type="ball" pos="0.05 0 0"/><geom size="0.1" pos="0 0.1 0"/>
      <body pos="0 0.2 0.1"><geom size="0.1" pos="0.3 0 0"/>
        <joint axis="1 2 0" pos="0 0.1 0"/><joint axis="0 1 0"/>
        <joint type="slide" axis="0 1 1"/><joint axis="0 0 1"/>
      </body>
    </body>
  </body>
  <body pos="2 0 1"><joint type="slide" axis="1 0 0"/><joint type="ball"/>
    <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0.2"/>
    <body pos="1 0 0"><geom size="0.1"/><joint axis="1 0 0"/></body>
  </body>
</worldbody></mujoco>
"""


def test_motions_of_degrees_of_freedom_equal_those_of_mjx():
    model = mujoco.MjModel.from_xml_string(JOINTS)
    physics, random = mjx.put_model(model), np.random.default_rng(0)
    data = mjx.make_data(physics).replace(
        qpos=jnp.asarray(random.normal(size=model.nq), jnp.float32),
        qvel=jnp.asarray(random.normal(size=model.nv), jnp.float32),
    )

    def both(data):
        with mjx_patches.use("stock"), physics_settings():
            data = smooth.com_pos(physics, smooth.kinematics(physics, data))
            data = smooth.com_vel(physics, data)
        ours = dofs.motions(physics, data), dofs.motion_rates(physics, data)
        return ours, (data.cdof, data.cdof_dot)

    for ours, reference in zip(*jax.jit(both)(data), strict=True):
        assert np.any(reference, axis=1).sum() > 12
        np.testing.assert_allclose(ours, reference, atol=1e-6)


def test_the_problems_have_every_kind_of_row(stock):
    impl = stock._impl
    assert (impl.ne, impl.nf, impl.nl) == (6, 1, 1)
    assert (np.asarray(impl.efc_force[:, 8:]) > 0).sum() > NUMBER  # contacts
    assert (np.asarray(impl.efc_force[:, 7]) > 0).any()  # the limit
    slides = np.isclose(np.abs(impl.efc_force[:, 6]), 0.1, atol=1e-3)
    assert slides.any()


@pytest.fixture(scope="module")
def solutions(stock):
    """Return the solutions of MJX, of plain JAX and of the kernel after two iterations."""
    physics, counts = PHYSICS.tree_replace({"opt.iterations": 2}), (2, 10)

    def solve(data):
        return {
            "mjx": mjx.solve(physics, data),
            "plain": newton.solve(problem(data), *counts, newton.PLAIN),
            "kernel": kernel.solve_constraints(problem(data), *counts, interpret=True),
        }

    with kind("stock"), physics_settings():
        return jax.jit(jax.vmap(solve))(stock)


@pytest.mark.parametrize("how", ["plain", "kernel"])
def test_forces_equal_those_of_mjx(stock, solutions, how):
    wanted, found = solutions["mjx"], solutions[how]
    assert error(wanted.qacc, stock.qacc) > 1e-2, "more iterations than two change the solution"
    assert error(found.qacc, wanted.qacc) < 1e-4
    assert error(found.qfrc_constraint, wanted.qfrc_constraint) < 1e-4
    assert error(found.efc_force, wanted._impl.efc_force) < 1e-4


def test_three_kernels_equal_one(stock, monkeypatch):
    """A single iteration takes three kernels where the Jacobian is large."""

    def both(data):
        solve = functools.partial(
            kernel.solve_constraints, problem(data), iterations=1, line_iterations=10
        )
        one = solve(interpret=True)
        monkeypatch.setattr(kernel, "_ONE_KERNEL", 1)
        return one, solve(interpret=True), newton.solve(problem(data), 1, 10, newton.PLAIN)

    with physics_settings():
        one, three, plain = jax.jit(jax.vmap(both))(stock)
    for found in (one, three):
        assert error(found.qacc, plain.qacc) < 1e-5
        assert error(found.qfrc_constraint, plain.qfrc_constraint) < 1e-4
        assert error(found.efc_force, plain.efc_force) < 1e-4


def test_the_start_without_warm_start_is_the_unconstrained_acceleration(stock):
    def both(data):
        cold = problem(data)._replace(warm_start=None)
        warm = cold._replace(warm_start=cold.qacc_smooth)
        return [newton.solve(each, 1, 10, newton.PLAIN).qacc for each in (cold, warm)]

    with physics_settings():
        first, second = jax.jit(jax.vmap(both))(stock)
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_systems_are_solved():
    random = np.random.default_rng(0)
    for size in (1, 7, 16, 20):
        root = random.normal(size=(3, size, size))
        matrix = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)
        vector = random.normal(size=(3, size))
        solve = jax.vmap(lambda a, b: kernel.solve_positive(a, b, interpret=True))
        found = solve(jnp.asarray(matrix, jnp.float32), jnp.asarray(vector, jnp.float32))
        residual = np.einsum("nij,nj->ni", matrix, found) - vector
        assert np.abs(residual).max() < 1e-3


# JAX 0.12 announces that a later version will drop the Triton backend of Pallas.
announced = pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")


@contextlib.contextmanager
def skipped_without_gpu():
    """JAX 0.12 lowers kernels only where there is a GPU."""
    try:
        yield
    except RuntimeError as error:
        if "No supported GPU devices found" not in str(error):
            raise
        pytest.skip(str(error))


@announced
def test_kernels_compile_for_gpus(stock, monkeypatch):
    def kernels(iterations):
        def step(data):
            solution = kernel.solve_constraints(problem(data), iterations, 10)
            return kernel.solve_positive(data._impl.M, solution.qfrc_constraint)

        with skipped_without_gpu():
            lowered = jax.jit(jax.vmap(step)).trace(stock).lower(lowering_platforms=("cuda",))
        return lowered.as_text().count("custom_call @__gpu$xla.gpu.triton")

    assert kernels(4) == 2
    monkeypatch.setattr(kernel, "_ONE_KERNEL", 1)
    assert kernels(1) == 4


@announced
def test_large_problems_are_solved_by_mjx_on_gpus(stock, monkeypatch):
    """A kernel that does not fit into registers is slower than MJX's functions."""

    def kernels() -> int:
        with skipped_without_gpu(), kind("kernels"), physics_settings():
            traced = jax.jit(jax.vmap(lambda data: mjx.solve(PHYSICS, data).qacc)).trace(stock)
            return traced.lower(lowering_platforms=("cuda",)).as_text().count("xla.gpu.triton")

    assert kernels() == 1
    monkeypatch.setattr(mjx_patches, "_MAX_ELEMENTS", 1)
    assert kernels() == 0


def played_by_mujoco(model, start, control, steps):
    """Return MuJoCo's own state, in double precision, after steps from the first of the states."""
    data = mujoco.MjData(model)
    data.qpos, data.qvel = start.qpos[0], start.qvel[0]
    data.qacc_warmstart, data.ctrl = start.qacc_warmstart[0], control
    mujoco.mj_step(model, data, steps)
    return data


def test_steps_equal_those_of_mujoco():
    def ten(data):
        with physics_settings():
            return mjx_patches.substeps(PHYSICS, data, jnp.asarray([0.3]), 10)

    ten = jax.jit(jax.vmap(ten))
    data = [states()]
    for _ in range(10):
        data.append(ten(data[-1]))
    few, many = (played_by_mujoco(MODEL, data[0], 0.3, number) for number in (10, 100))
    np.testing.assert_allclose(data[1].qpos[0], few.qpos, atol=1e-3)
    np.testing.assert_allclose(data[1].sensordata[0], few.sensordata, atol=2e-2)
    # By then the rounding of contacts has moved the other bodies apart.
    np.testing.assert_allclose(data[10].qpos[0, :2], many.qpos[:2], atol=2e-4)
    np.testing.assert_allclose(data[10].sensordata[0], many.sensordata, atol=2e-2)


def test_implicit_integration_equals_that_of_mjx_and_mujoco(stock):
    """Of what `stock` computed before it."""
    model, physics = model_of(integrator="implicitfast", iterations=20)

    def integrate(data, name):
        with kind(name), physics_settings():
            return forward.implicit(physics, data)

    def both(data):
        return integrate(data, "kernels"), integrate(data, "stock")

    found, wanted = jax.jit(jax.vmap(both))(stock)
    np.testing.assert_allclose(found.qvel, wanted.qvel, atol=1e-5)
    np.testing.assert_allclose(found.qpos, wanted.qpos, atol=1e-6)
    data = played_by_mujoco(model, states(), 0, 1)
    np.testing.assert_allclose(found.qvel[0], data.qvel, atol=5e-3)


@pytest.mark.parametrize("options", [{}, {"cone": "elliptic"}, {"solver": "CG"}])
def test_other_solvers_and_cones_are_those_of_mjx(options, monkeypatch):
    called = []
    solve = newton.solve
    monkeypatch.setattr(newton, "solve", lambda *a, **k: called.append(1) or solve(*a, **k))
    _, physics = model_of(**options)
    with physics_settings():
        jax.eval_shape(lambda data: mjx.forward(physics, data), mjx.make_data(physics))
    assert bool(called) == (not options)


def test_physics_stock_traces_functions_of_mjx(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("called")

    monkeypatch.setattr(newton, "solve", fails)

    def reset(choice):
        env = factory._make(
            presets.get("custom", env="inverted_pendulum", backend="mjx", physics=choice)
        )
        with physics_settings():
            jax.eval_shape(env.reset, jax.random.key(0))

    reset("stock")
    with pytest.raises(RuntimeError, match="called"):
        reset("fast")


@announced
def test_kernels_can_be_cached():
    """As the trace cache stores programs; a version of JAX reads only its own."""
    solve = jax.jit(jax.vmap(kernel.solve_positive))
    export_for_gpus = export.export(solve, platforms=["cuda"], disabled_checks=compiler.UNCHECKED)
    with skipped_without_gpu():
        exported = export_for_gpus(jnp.zeros((2, 3, 3)), jnp.zeros((2, 3)))
    assert export.deserialize(exported.serialize()).out_avals == exported.out_avals
