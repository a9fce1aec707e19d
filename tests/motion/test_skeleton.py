"""Forward kinematics against MuJoCo's, and properties of our humanoid."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco import mjx

from jaxrl.errors import UserError
from jaxrl.motion import rotations, skeleton
from jaxrl.motion.humanoid import damped_implicitly

ODD = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="base" pos="1 2 3" quat="0.5 0.5 -0.5 0.5">
      <freejoint name="base"/><geom size="0.1"/>
      <body name="arm" pos="0.1 -0.2 0.3" quat="0.8 0 0.6 0">
        <joint name="arm_z" axis="0 0 1" pos="0.05 0 0" ref="0.3"/>
        <joint name="arm_x" axis="1 1 0" pos="0.05 0 0"/>
        <joint name="arm_y" axis="0 1 0" pos="0 0.02 -0.1"/>
        <geom size="0.1"/>
        <body name="plate" pos="0 0 0.4" euler="0.1 0.2 0.3">
          <geom size="0.1"/>
          <body name="hand" pos="0 0 0.1" euler="1 0 0">
            <joint name="hand" type="ball" pos="0 0.1 0.1"/><geom size="0.1"/>
            <body name="nail"><joint name="nail" type="slide" axis="0 1 1" ref="-0.1"/>
              <geom size="0.1"/></body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def _random_qpos(model, count):
    rng = np.random.default_rng(0)
    qpos = rng.normal(size=(count, model.nq))
    for row in qpos:
        mujoco.mj_normalizeQuat(model, row)
    return qpos


@pytest.mark.parametrize("xml", [None, ODD], ids=["ours", "odd"])
def test_forward_kinematics_agrees_with_mujoco(xml):
    model = skeleton.load_model() if xml is None else mujoco.MjModel.from_xml_string(xml)
    bones = skeleton.describe(model)
    qpos = _random_qpos(model, 6)
    forward = jax.jit(lambda qpos: skeleton.forward_kinematics(bones, qpos))
    position, rotation = forward(jnp.asarray(qpos).reshape(2, 3, -1))
    assert position.shape == (2, 3, len(bones.bodies), 3)
    data = mujoco.MjData(model)
    position, rotation = np.asarray(position).reshape(6, -1, 3), rotation.reshape(6, -1, 4)
    for i, row in enumerate(qpos):
        data.qpos[:] = row
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(position[i], data.xpos[1:], atol=2e-6)
        alike = np.abs(np.sum(np.asarray(rotation[i]) * data.xquat[1:], -1))
        np.testing.assert_allclose(alike, 1.0, atol=1e-6)


def test_humanoid_model_properties():
    model = skeleton.load_model()
    bones = skeleton.describe(model)
    assert len(bones.bodies) == 15
    assert model.nu == model.nv - 6 == 28
    assert model.body_mass.sum() == pytest.approx(45.0)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.body("left_wrist").xpos[1] > 0 > data.body("right_wrist").xpos[1]
    soles = data.geom("left_ankle").xpos[2] - model.geom("left_ankle").size[2]
    assert soles == pytest.approx(0.0, abs=1e-5)  # it stands on the ground
    np.testing.assert_allclose(data.actuator_length, 0.0, atol=1e-9)
    touching = {tuple(sorted((int(c.geom1), int(c.geom2)))) for c in data.contact}
    assert all(model.geom("floor").id in pair for pair in touching)


def _angles(model, data):
    bones = skeleton.describe(model)
    compute = jax.jit(lambda qpos: skeleton.joint_angles(bones, qpos))
    return np.asarray(compute(jnp.asarray(data.qpos, jnp.float32)))


def test_servos_measure_the_joint_angles():
    """Actuator lengths are the angles we compute, in the same order."""
    model = skeleton.load_model()
    data = mujoco.MjData(model)
    data.qpos[:] = _random_qpos(model, 1)[0]
    mujoco.mj_forward(model, data)
    angles = _angles(model, data)
    np.testing.assert_allclose(angles, data.actuator_length, atol=1e-5)


def test_servos_pull_a_ball_joint_to_its_target():
    """Weightless and fixed in the air, all three components of every ball joint arrive."""
    model = skeleton.load_model()
    model.opt.gravity[:] = 0
    data = mujoco.MjData(model)
    data.qpos[2] += 1.0
    target = np.full(model.nu, 0.4)
    target[[model.actuator(f"{side}_knee").id for side in ("left", "right")]] = -0.9
    for k in range(0, model.nu, 3):
        target[k] *= -1
    target = np.clip(target, model.actuator_ctrlrange[:, 0] + 0.2, model.actuator_ctrlrange[:, 1])
    data.ctrl[:] = target
    for _ in range(960):
        mujoco.mj_step(model, data)
    angles = _angles(model, data)
    limits = model.actuator_trnid[:, 0]
    free = ~model.jnt_limited[limits].astype(bool)
    np.testing.assert_allclose(angles[free], target[free], atol=0.02)


def test_ball_joint_servos_reach_their_target_in_mjx():
    """Three servos with unit gears reach an exponential map, and MJX measures it as MuJoCo does."""
    xml = """<mujoco><option gravity="0 0 0" integrator="implicitfast" timestep="0.02"/>
      <worldbody><body><joint name="j" type="ball"/><geom size="0.1 0.2" type="capsule"/></body>
      </worldbody><actuator>
      <position joint="j" kp="40" kv="8" gear="1 0 0 0 0 0"/>
      <position joint="j" kp="40" kv="8" gear="0 1 0 0 0 0"/>
      <position joint="j" kp="40" kv="8" gear="0 0 1 0 0 0"/></actuator></mujoco>"""
    target = jnp.asarray([1.2, -0.9, 0.7])
    model = mjx.put_model(mujoco.MjModel.from_xml_string(xml))
    data = mjx.make_data(model).replace(ctrl=target)
    run = jax.jit(lambda d: jax.lax.fori_loop(0, 200, lambda _, d: mjx.step(model, d), d))
    with jax.numpy_rank_promotion("allow"):
        data = run(data)
    np.testing.assert_allclose(rotations.to_exp_map(data.qpos), target, atol=2e-3)


def test_the_humanoid_stays_finite_with_targets_at_rest():
    model = damped_implicitly(skeleton.load_model(), 1 / 90)
    data = mujoco.MjData(model)
    data.qpos[2] += 0.02
    fastest = 0.0
    for _ in range(180):
        mujoco.mj_step(model, data)
        fastest = max(fastest, float(np.abs(data.qvel).max()))
    assert fastest < 30.0
    assert np.isfinite(data.qpos).all()


def test_unusable_models_are_rejected(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        skeleton.load_model(str(tmp_path / "none.xml"))
    (tmp_path / "bad.xml").write_text("<mujoco><worldbody><body/>")
    with pytest.raises(UserError, match="bad.xml"):
        skeleton.load_model(str(tmp_path / "bad.xml"))
    hinged = (
        "<mujoco><worldbody><body><joint name='j'/><geom size='1'/></body></worldbody></mujoco>"
    )
    with pytest.raises(UserError, match="'j' is a hinge"):
        skeleton.describe(mujoco.MjModel.from_xml_string(hinged))
