"""Damping added to the inertia matches MuJoCo's implicit damping."""

import mujoco
import numpy as np

from jaxrl.motion.humanoid import damped_implicitly

PENDULUM = """<mujoco><option gravity="0 0 0" timestep="{}" integrator="implicit"/>
  <worldbody><body><freejoint/><geom size="0.1" mass="50"/>
    <body><joint name="j" axis="0 1 0" damping="{}"/>
      <geom size="0.1" pos="0 0 -0.3" mass="1"/></body>
  </body></worldbody>
  <actuator><position joint="j" kp="50" kv="{}" ctrlrange="-1 1"/></actuator></mujoco>"""


def simulate(model, steps):
    data = mujoco.MjData(model)
    data.ctrl[:] = 0.5
    for _ in range(steps):
        mujoco.mj_step(model, data)
    return np.array([data.qpos[7], data.qvel[6]])


def test_damping_matches_mujocos_implicit_integrator():
    step = 0.01
    model = mujoco.MjModel.from_xml_string(PENDULUM.format(step, 1.5, 20.0))
    expected = simulate(model, 15)
    np.testing.assert_allclose(simulate(damped_implicitly(model, step), 15), expected, atol=2e-3)
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICIT  # the model is not changed
    assert 0.01 < expected[0] < 0.5


def test_explicit_damping_is_unstable_at_the_same_timestep():
    model = mujoco.MjModel.from_xml_string(PENDULUM.format(0.01, 0.0, 20.0))
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    assert np.abs(simulate(model, 15)).max() > 10.0
    assert np.abs(simulate(damped_implicitly(model, 0.01), 15)).max() < 10.0
