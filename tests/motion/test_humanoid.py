"""The humanoid in MJX against MuJoCo itself."""

import copy

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion import synthetic
from jaxrl.motion.humanoid import Humanoid, Pose
from jaxrl.physics.precision import physics

FPS, SUBSTEPS = 30.0, 4


@pytest.fixture(scope="module")
def humanoid(model):
    model = copy.copy(model)
    # Enough iterations for both solvers to converge, which training does not need.
    model.opt.iterations, model.opt.ls_iterations = 20, 20
    return Humanoid(model, FPS, SUBSTEPS)


@pytest.fixture(scope="module")
def move(humanoid):
    """Compile `humanoid.move` once, since compiling is slow."""
    jitted = jax.jit(humanoid.move)

    def run(pose, target):
        with physics():
            return jitted(pose, jnp.asarray(target, jnp.float32))

    return run


@pytest.fixture(scope="module")
def body_motion(humanoid):
    jitted = jax.jit(humanoid.body_motion)

    def run(pose):
        with physics():
            return jitted(pose)

    return run


def _pose(humanoid, seed=0, height=1.0):
    """Return a pose of the clip, on the ground or tilted in the air, with random velocities."""
    rng = np.random.default_rng(seed)
    qpos = synthetic.stepping(humanoid.skeleton).qpos[7].copy()
    qpos[2] += height
    tilt = 0.3 if height > 0 else 0.0  # of the root, so that frames differ
    turn = np.array([0.0, 0.0, 0.0, tilt, -0.5 * tilt, 0.7])
    mujoco.mj_integratePos(humanoid.model, qpos, np.pad(turn, (0, humanoid.model.nv - 6)), 1.0)
    return qpos, 0.5 * rng.normal(size=humanoid.model.nv)


def _start(humanoid, qpos, qvel):
    return humanoid.start(jnp.asarray(qpos, jnp.float32), jnp.asarray(qvel, jnp.float32))


def test_control_step_lasts_one_frame(humanoid):
    assert humanoid.model.opt.timestep * SUBSTEPS == pytest.approx(1 / FPS)
    assert humanoid.num_actuators == 28
    np.testing.assert_array_equal(humanoid.low, np.float32(humanoid.model.actuator_ctrlrange[:, 0]))


def test_actuator_angles_match_mujoco(humanoid):
    qpos, qvel = _pose(humanoid)
    data = mujoco.MjData(humanoid.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(humanoid.model, data)
    found = jax.jit(humanoid.angles)(jnp.asarray(qpos, jnp.float32))
    np.testing.assert_allclose(found, data.actuator_length, atol=1e-5)


def test_body_motion_matches_mujoco(humanoid, body_motion):
    qpos, qvel = _pose(humanoid)
    data = mujoco.MjData(humanoid.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(humanoid.model, data)
    motion = np.empty((15, 6))
    for body, row in enumerate(motion):
        mujoco.mj_objectVelocity(humanoid.model, data, mujoco.mjtObj.mjOBJ_XBODY, body + 1, row, 0)
    found = body_motion(_start(humanoid, qpos, qvel))
    np.testing.assert_allclose(found.position, data.xpos[1:], atol=1e-5)
    np.testing.assert_allclose(found.rotation, data.xquat[1:], atol=1e-5)
    np.testing.assert_allclose(found.velocity, motion[:, 3:], atol=2e-5)
    np.testing.assert_allclose(found.spin, motion[:, :3], atol=2e-5)
    assert np.abs(motion[:, 3:]).max() > 0.5


def test_body_velocities_match_finite_differences(humanoid, body_motion):
    """Central differences of positions and rotations."""
    qpos, qvel = _pose(humanoid, seed=1)
    positions, rotations, eps = [], [], 1e-6
    for step in (-eps, eps):
        data = mujoco.MjData(humanoid.model)
        data.qpos[:] = qpos
        mujoco.mj_integratePos(humanoid.model, data.qpos, qvel, step)
        mujoco.mj_kinematics(humanoid.model, data)
        positions.append(data.xpos[1:].copy())
        rotations.append(data.xmat[1:].reshape(-1, 3, 3).copy())
    found = body_motion(_start(humanoid, qpos, qvel))
    np.testing.assert_allclose(found.velocity, (positions[1] - positions[0]) / (2 * eps), atol=2e-5)
    change = (
        (rotations[1] - rotations[0])
        / (2 * eps)
        @ np.swapaxes(0.5 * (rotations[0] + rotations[1]), 1, 2)
    )
    spin = np.stack([change[:, 2, 1], change[:, 0, 2], change[:, 1, 0]], -1)
    np.testing.assert_allclose(found.spin, spin, atol=2e-5)


def _stepped(humanoid, qpos, qvel, targets):
    """Yield MuJoCo's own state after each control step."""
    data = mujoco.MjData(humanoid.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    for target in targets:
        data.ctrl[:] = target
        for _ in range(humanoid.substeps):
            mujoco.mj_step(humanoid.model, data)
        yield data


@pytest.mark.parametrize("height", [1.0, -0.003])
def test_move_matches_mujoco(humanoid, move, height):
    """In the air, and on a foot pressed down so that rounding does not decide on contact.

    Servos stay below their force limits: MuJoCo leaves the damping of saturated servos out of its
    implicit step, MJX does not.
    """
    qpos, qvel = _pose(humanoid, height=height)
    qvel *= 0.2 if height > 0 else 0.02
    rng = np.random.default_rng(3)
    held = np.asarray(humanoid.angles(jnp.asarray(qpos, jnp.float32)))
    targets = np.clip(held + 0.02 * rng.normal(size=(4, 28)), humanoid.low, humanoid.high)
    pose = _start(humanoid, qpos, qvel)
    for target, data in zip(targets, _stepped(humanoid, qpos, qvel, targets), strict=True):
        pose, power = move(pose, target)
        assert (np.abs(data.actuator_force) < humanoid.model.actuator_forcerange[:, 1]).all()
        assert (data.ncon > 0) == (height < 0)
        np.testing.assert_allclose(pose.qpos, data.qpos, atol=2e-5)
        np.testing.assert_allclose(pose.qvel, data.qvel, atol=2e-3)
        spent = np.abs(data.qfrc_actuator * data.qvel).sum()
        assert float(power) == pytest.approx(spent, rel=1e-3) and spent > 1.0


def test_targets_are_clipped_to_the_control_range(humanoid, move):
    qpos, qvel = _pose(humanoid)
    start = _start(humanoid, qpos, qvel)
    beyond, power = move(start, humanoid.high + 5.0)
    at, same = move(start, humanoid.high)
    np.testing.assert_array_equal(beyond.qpos, at.qpos)
    assert power == same


def test_solver_warm_start_is_carried(humanoid, move):
    qpos, qvel = _pose(humanoid)
    pose, _ = move(_start(humanoid, qpos, qvel), np.zeros(28))
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
    '<position joint="j" gear="1 1 0" ctrlrange="-1 1"/>': "'#0'.* one 1 in its gear",
}


@pytest.mark.parametrize("actuator", WRONG)
def test_unsupported_actuators_are_reported_by_name(actuator):
    kind = "ball" if "1 1 0" in actuator else "hinge"
    model = mujoco.MjModel.from_xml_string(BODY.format(kind=kind, actuator=actuator))
    with pytest.raises(UserError, match=WRONG[actuator]):
        Humanoid(model, FPS, SUBSTEPS)
