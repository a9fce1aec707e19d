"""The humanoid in MJX against MuJoCo itself."""

import copy

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl.envs.env_state import physics
from jaxrl.errors import UserError
from jaxrl.motion import synthetic
from jaxrl.motion.humanoid import Humanoid, Pose

FPS, SUBSTEPS = 30.0, 4


@pytest.fixture(scope="module")
def figure(model):
    model = copy.copy(model)
    # So many that both solvers come to the same end, which the one of training need not.
    model.opt.iterations, model.opt.ls_iterations = 20, 20
    return Humanoid(model, FPS, SUBSTEPS)


@pytest.fixture(scope="module")
def move(figure):
    """Compiled once, since that is what takes time."""
    jitted = jax.jit(figure.move)

    def run(pose, target):
        with physics():
            return jitted(pose, jnp.asarray(target, jnp.float32))

    return run


@pytest.fixture(scope="module")
def shown(figure):
    jitted = jax.jit(figure.body_motion)

    def run(pose):
        with physics():
            return jitted(pose)

    return run


def _pose(figure, seed=0, height=1.0):
    """Return a pose of the clip, on the ground or tilted in the air, with speeds of any kind."""
    rng = np.random.default_rng(seed)
    qpos = synthetic.stepping(figure.skeleton).qpos[7].copy()
    qpos[2] += height
    tilt = 0.3 if height > 0 else 0.0  # of the root, so that frames differ
    turn = np.array([0.0, 0.0, 0.0, tilt, -0.5 * tilt, 0.7])
    mujoco.mj_integratePos(figure.model, qpos, np.pad(turn, (0, figure.model.nv - 6)), 1.0)
    return qpos, 0.5 * rng.normal(size=figure.model.nv)


def _start(figure, qpos, qvel):
    return figure.start(jnp.asarray(qpos, jnp.float32), jnp.asarray(qvel, jnp.float32))


def test_a_control_step_takes_one_frame(figure):
    assert figure.model.opt.timestep * SUBSTEPS == pytest.approx(1 / FPS)
    assert figure.num_actuators == 28
    np.testing.assert_array_equal(figure.low, np.float32(figure.model.actuator_ctrlrange[:, 0]))


def test_actuators_measure_what_mujoco_says(figure):
    qpos, qvel = _pose(figure)
    data = mujoco.MjData(figure.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(figure.model, data)
    found = jax.jit(figure.angles)(jnp.asarray(qpos, jnp.float32))
    np.testing.assert_allclose(found, data.actuator_length, atol=1e-5)


def test_bodies_move_as_mujoco_says(figure, shown):
    qpos, qvel = _pose(figure)
    data = mujoco.MjData(figure.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(figure.model, data)
    motion = np.empty((15, 6))
    for body, row in enumerate(motion):
        mujoco.mj_objectVelocity(figure.model, data, mujoco.mjtObj.mjOBJ_XBODY, body + 1, row, 0)
    found = shown(_start(figure, qpos, qvel))
    np.testing.assert_allclose(found.position, data.xpos[1:], atol=1e-5)
    np.testing.assert_allclose(found.rotation, data.xquat[1:], atol=1e-5)
    np.testing.assert_allclose(found.velocity, motion[:, 3:], atol=2e-5)
    np.testing.assert_allclose(found.spin, motion[:, :3], atol=2e-5)
    assert np.abs(motion[:, 3:]).max() > 0.5


def test_bodies_move_as_their_places_change(figure, shown):
    """A moment later, by differences of positions and of rotations."""
    qpos, qvel = _pose(figure, seed=1)
    places, turns, eps = [], [], 1e-6
    for step in (-eps, eps):
        data = mujoco.MjData(figure.model)
        data.qpos[:] = qpos
        mujoco.mj_integratePos(figure.model, data.qpos, qvel, step)
        mujoco.mj_kinematics(figure.model, data)
        places.append(data.xpos[1:].copy())
        turns.append(data.xmat[1:].reshape(-1, 3, 3).copy())
    found = shown(_start(figure, qpos, qvel))
    np.testing.assert_allclose(found.velocity, (places[1] - places[0]) / (2 * eps), atol=2e-5)
    change = (turns[1] - turns[0]) / (2 * eps) @ np.swapaxes(0.5 * (turns[0] + turns[1]), 1, 2)
    spin = np.stack([change[:, 2, 1], change[:, 0, 2], change[:, 1, 0]], -1)
    np.testing.assert_allclose(found.spin, spin, atol=2e-5)


def _stepped(figure, qpos, qvel, targets):
    """Yield MuJoCo's own state after each control step."""
    data = mujoco.MjData(figure.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    for target in targets:
        data.ctrl[:] = target
        for _ in range(figure.substeps):
            mujoco.mj_step(figure.model, data)
        yield data


@pytest.mark.parametrize("height", [1.0, -0.003])
def test_it_moves_as_mujoco_moves_it(figure, move, height):
    """In the air, and on a foot, a little pressed so that rounding does not decide on contact.

    Servos stay below their largest forces: of those at them, MuJoCo leaves the damping out of its
    implicit step, and MJX does not.
    """
    qpos, qvel = _pose(figure, height=height)
    qvel *= 0.2 if height > 0 else 0.02
    rng = np.random.default_rng(3)
    held = np.asarray(figure.angles(jnp.asarray(qpos, jnp.float32)))
    targets = np.clip(held + 0.02 * rng.normal(size=(4, 28)), figure.low, figure.high)
    pose = _start(figure, qpos, qvel)
    for target, data in zip(targets, _stepped(figure, qpos, qvel, targets), strict=True):
        pose, power = move(pose, target)
        assert (np.abs(data.actuator_force) < figure.model.actuator_forcerange[:, 1]).all()
        assert (data.ncon > 0) == (height < 0)
        np.testing.assert_allclose(pose.qpos, data.qpos, atol=2e-5)
        np.testing.assert_allclose(pose.qvel, data.qvel, atol=2e-3)
        spent = np.abs(data.qfrc_actuator * data.qvel).sum()
        assert float(power) == pytest.approx(spent, rel=1e-3) and spent > 1.0


def test_targets_are_kept_within_what_servos_take(figure, move):
    qpos, qvel = _pose(figure)
    start = _start(figure, qpos, qvel)
    beyond, power = move(start, figure.high + 5.0)
    at, same = move(start, figure.high)
    np.testing.assert_array_equal(beyond.qpos, at.qpos)
    assert power == same


def test_the_solver_goes_on_from_its_last_answer(figure, move):
    qpos, qvel = _pose(figure)
    pose, _ = move(_start(figure, qpos, qvel), np.zeros(28))
    assert isinstance(pose, Pose) and np.abs(pose.warmstart).max() > 0.0


BODY = """<mujoco><worldbody><body><freejoint name="root"/><geom size="1"/><body>
<joint name="j" type="{kind}" axis="1 0 0"/><geom size="1"/></body></body></worldbody>
<actuator>{actuator}</actuator></mujoco>"""
WRONG = {
    '<motor name="m" joint="j" gear="2" ctrlrange="-1 1"/>': "'m'.* position servos",
    '<motor name="m" joint="j" ctrlrange="-1 1"/>': "'m'.* position servos",
    '<velocity name="m" joint="j" kv="3" ctrlrange="-1 1"/>': "'m'.* position servos",
    '<position name="m" joint="root" ctrlrange="-1 1"/>': "'m'.* not its root",
    '<position name="m" joint="j"/>': "'m' needs a ctrlrange",
    '<position joint="j" gear="1 1 0" ctrlrange="-1 1"/>': "'number 0'.* one 1 in its gear",
}


@pytest.mark.parametrize("actuator", WRONG)
def test_actuators_that_cannot_be_aimed_are_named(actuator):
    kind = "ball" if "1 1 0" in actuator else "hinge"
    model = mujoco.MjModel.from_xml_string(BODY.format(kind=kind, actuator=actuator))
    with pytest.raises(UserError, match=WRONG[actuator]):
        Humanoid(model, FPS, SUBSTEPS)
