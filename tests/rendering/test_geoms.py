"""Visible geoms of a model, camera placement and ground height."""

import mujoco
import numpy as np
import pytest

from jaxrl.rendering import camera, geoms, primitives, scene

XML = """<mujoco>
<asset>
  <texture name="t" type="2d" builtin="flat" rgb1="1 0.5 0" rgb2="1 0.5 0" width="8" height="8"/>
  <material name="painted" texture="t" rgba="0.5 1 1 1"/>
</asset>
<worldbody>
  <geom type="plane" size="5 5 1" pos="0 0 -0.3"/>
  <geom type="box" size="0.5 0.5 0.1" rgba="0.1 0.2 0.3 1"/>
  <site name="goal" pos="1 0 0" size="0.05" rgba="0 1 0 0.5"/>
  <body pos="0 0 1"><joint type="slide" axis="1 0 0"/>
    <geom size="0.1" material="painted"/>
    <geom size="0.2" material="painted" rgba="0 0 1 1"/>
    <geom size="0.3" group="3"/>
    <geom size="0.4" rgba="1 1 1 0"/>
  </body>
  <body name="hand" mocap="true"><geom size="0.05" rgba="1 0 0 1"/></body>
</worldbody></mujoco>"""


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(XML)


def test_geom_colours_match_mujoco(model):
    box, textured, own, hand, goal = geoms.visible_geoms(model)
    np.testing.assert_allclose(box.colour, [0.1, 0.2, 0.3, 1], atol=1e-6)
    np.testing.assert_allclose(textured.colour, [0.5, 0.5, 0, 1], atol=0.01)
    np.testing.assert_allclose(own.colour, [0, 0, 1, 1])
    np.testing.assert_allclose(goal.colour, [0, 1, 0, 0.5])
    assert [geom.moves for geom in (box, textured, own, hand, goal)] == [0, 1, 1, 1, 0]


def test_body_poses_follow_joints_and_mocap(model):
    qpos, held = np.array([[0.0], [2.0]]), np.array([[[0, 0, 3.0]], [[0, 4.0, 3]]])
    turn = np.tile([0.0, 0, 0, 1], (2, 1, 1))
    found = geoms.body_poses(model, qpos, held, turn)
    np.testing.assert_allclose(found.pos[:, 1], [[0, 0, 1], [2, 0, 1]])
    np.testing.assert_allclose(found.pos[:, 2], held[:, 0])
    np.testing.assert_allclose(found.quat[1, 2], [0, 0, 0, 1])


def test_ground_is_the_plane_or_below_all_geoms(model):
    assert geoms.ground_height(model) == pytest.approx(-0.3)
    ball = '<body pos="0 0 2"><joint/><geom size="0.5"/></body>'
    bare = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
    seen, floor = scene.frame_scene(
        primitives.model_shapes(bare), geoms.body_poses(bare, np.zeros((3, 1)))
    )
    assert geoms.ground_height(bare) is None
    assert 1.5 - 0.1 < floor < 1.5
    np.testing.assert_allclose(seen.aim, np.tile([0, 0, 2.0], (3, 1)), atol=1e-9)


def _boxes(path, size=1.0):
    middle = np.stack([path, 0 * path, 0.5 + 0 * path], -1)
    half = 0.5 * size * np.array([1, 1, 1])
    return middle - half, middle + half


def test_camera_follows_only_travelling_bodies():
    far, near = np.linspace(0, 50, 200), np.linspace(-0.5, 0.5, 200)
    followed, stayed = camera.make_view(*_boxes(far)), camera.make_view(*_boxes(near))
    np.testing.assert_allclose(followed.aim[:, 0], far, atol=0.5)
    assert np.ptp(stayed.aim, axis=0).max() == 0
    walls = np.array([[-3.0, -3, 0], [3, 3, 0.2]])
    assert camera.make_view(*_boxes(near), walls).radius > 2 * stayed.radius
    assert (
        camera.make_view(*_boxes(near), 100 * walls).radius == stayed.radius
    )  # too large to be framed


def test_all_bodies_are_inside_the_image():
    low, high = _boxes(np.linspace(-0.5, 0.5, 5))
    for size in ((400, 300), (300, 400)):
        for i, seen in enumerate(camera.fixed_cameras(camera.make_view(low, high), size)):
            corners = np.stack(np.meshgrid(*np.stack([low[i], high[i]], 1)), -1).reshape(-1, 3)
            places, depth = seen.project(corners)
            assert depth.min() > 0
            assert (places > -0.05 * max(size)).all() and (places < 1.05 * np.array(size)).all()


def test_flat_scenes_are_viewed_from_above():
    low, high = _boxes(np.linspace(-0.5, 0.5, 5))
    flat = camera.make_view(low * [1, 1, 0.02], high * [1, 1, 0.02])
    assert flat.elevation > 2 * camera.make_view(low, high).elevation
