"""The software renderer against a pinhole camera, in the model's colours."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.motion import skeleton
from jaxrl.rendering import camera, geoms, primitives, software_renderer

SIZE = (160, 120)
BALL = """<mujoco><worldbody><geom type="plane" size="0 0 1"/>
<body pos="0 0 1"><freejoint/><geom size="0.25" rgba="0.9 0.1 0.1 1"/>MORE</body>
</worldbody></mujoco>"""


@pytest.fixture(scope="module")
def model():
    return skeleton.load_model()


def _model(more=""):
    return mujoco.MjModel.from_xml_string(BALL.replace("MORE", more))


def _coloured(image):
    """Return a mask [height, width] of pixels that are not grey."""
    image = image.astype(int)
    return image.max(-1) - image.min(-1) > 40


def _red(image):
    image = image.astype(int)
    return image[..., 0] - image[..., 2] > 60


def _blue(image):
    image = image.astype(int)
    return image[..., 2] - image[..., 0] > 40


def _box(mask):
    """Return left, top, right and bottom of a mask."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])


def _pinhole(view, point):
    """Return pixel and depth of a point, from eye + s (focal · into + x · right − y · up)."""
    right, up, into = view.axes
    towards = np.linalg.solve(np.stack([right, -up, view.focal * into], 1), point - view.eye)
    return np.array(view.size) / 2 + towards[:2] / towards[2], view.focal * towards[2]


def test_camera_views_a_humanoid_facing_x_from_its_right():
    (view,) = camera.tracking_cameras(np.array([[3.0, 2.0, 0.9]]), 0.0, 1.6, SIZE)
    np.testing.assert_allclose(view.axes @ view.axes.T, np.eye(3), atol=1e-12)
    assert view.eye[1] < 2.0 - 3.0
    centre, depth = view.project(np.array([3.0, 2.0, 0.9]))
    ahead, _ = view.project(np.array([4.0, 2.0, 0.9]))
    above, _ = view.project(np.array([3.0, 2.0, 1.4]))
    _, beyond = view.project(np.array([3.0, 3.0, 0.9]))
    assert abs(centre[0] - 80) < 1e-6 and abs(centre[1] - 60) < 10
    assert ahead[0] > centre[0] + 20 and above[1] < centre[1] - 20
    assert beyond > depth + 0.5
    far, _ = view.project(view.eye * [1, 1, 0] + 1e6 * view.axes[2] * [1, 1, 0])
    assert far[1] == pytest.approx(view.horizon, abs=0.01)


def test_camera_follows_smoothly_from_the_side():
    path = np.stack([np.zeros(90), np.linspace(0, 3, 90), 0.9 + np.zeros(90)], -1)
    noisy = path + 0.05 * np.random.default_rng(0).normal(size=path.shape) * [1, 1, 0]
    views = camera.tracking_cameras(noisy, np.pi / 2, 1.6, SIZE)
    x, _ = zip(
        *(view.project(place)[0] for view, place in zip(views, path, strict=True)), strict=True
    )
    assert np.abs(np.array(x) - 80).max() < 5  # always centred, seen from the side
    eyes = np.array([view.eye for view in views])
    assert np.abs(np.diff(eyes, axis=0) - np.diff(path, axis=0)).max() < 0.01


@pytest.mark.parametrize("place", [[0.0, 0.0, 1.0], [5.0, -2.0, 0.6]])
def test_ball_covers_its_projected_pixels(place):
    model = _model()
    pose = np.array([[*place, 1, 0, 0, 0]])
    (image,) = software_renderer.render_poses(model, pose, size=SIZE)
    assert image.shape == (120, 160, 3) and image.dtype == np.uint8
    (view,) = camera.tracking_cameras(pose[:, :3], 0.0, 1.25, SIZE)
    centre, depth = _pinhole(view, np.array(place))
    reach = view.focal * 0.25 / depth
    expected = [*(centre - reach), *(centre + reach)]
    np.testing.assert_allclose(_box(_coloured(image)), expected, atol=1.5)


def test_near_geom_occludes_the_far_one():
    (view,) = camera.tracking_cameras(np.zeros((1, 3)), 0.0, 1.25, SIZE)
    for distance, seen in ((-0.6, [0.1, 0.1, 0.9]), (0.6, [0.9, 0.1, 0.1])):
        where = " ".join(map(str, distance * view.axes[2]))
        model = _model(f'<geom size="0.2" rgba="0.1 0.1 0.9 1" pos="{where}"/>')
        (image,) = software_renderer.render_poses(
            model, np.array([[0, 0, 1.0, 1, 0, 0, 0]]), size=SIZE
        )
        left, top, right, bottom = _box(_coloured(image))
        middle = image[(top + bottom) // 2, (left + right) // 2]
        assert np.argmax(middle) == np.argmax(seen)


def _pose(model, **hinges):
    pose = model.qpos0.copy()
    for name, angle in hinges.items():
        joint = model.joint(name)
        if joint.type[0] == mujoco.mjtJoint.mjJNT_BALL:
            angle = Rotation.from_rotvec([0, angle, 0]).as_quat(scalar_first=True)
        pose[joint.qposadr[0] : joint.qposadr[0] + np.size(angle)] = angle
    return pose


def _lowest_row(model, pose, foot):
    """Return the lowest row in which a camera sees a corner of a foot."""
    data = mujoco.MjData(model)
    data.qpos[:] = pose
    mujoco.mj_kinematics(model, data)
    (view,) = camera.tracking_cameras(
        pose[None, :3], 0.0, software_renderer.height(primitives.model_shapes(model)), SIZE
    )
    signs = np.stack(np.meshgrid(*[[-1, 1]] * 3), -1).reshape(-1, 3)
    corners = signs * model.geom(foot).size @ data.geom(foot).xmat.reshape(3, 3).T
    return max(_pinhole(view, data.geom(foot).xpos + corner)[0][1] for corner in corners)


def test_raised_foot_moves_its_pixels(model):
    """The right leg is red and the left one blue, as in the model's file."""
    raised = _pose(model, right_hip=-1.0, right_knee=-1.5)
    standing, lifted = (
        software_renderer.render_poses(model, pose[None], size=SIZE)[0]
        for pose in (model.qpos0, raised)
    )
    for image, pose in ((standing, model.qpos0), (lifted, raised)):
        assert _box(_red(image))[3] == pytest.approx(
            _lowest_row(model, pose, "right_ankle"), abs=1.5
        )
        assert _box(_blue(image))[3] == pytest.approx(
            _lowest_row(model, pose, "left_ankle"), abs=1.5
        )
    assert _box(_red(lifted))[3] < _box(_red(standing))[3] - 6


def test_reference_is_drawn_grey_beside_or_as_a_ghost(model):
    poses = np.tile(model.qpos0, (2, 1))
    alone = software_renderer.render_poses(model, poses, size=SIZE)
    beside = software_renderer.render_poses(model, poses, poses, size=SIZE)
    assert len(alone) == len(beside) == 2
    # It stands to the right, where only ground and sky would be otherwise.
    left, _, right, _ = _box(_coloured(beside[0]))
    assert right < 80
    dark = beside[0].astype(int).max(-1) < 165
    assert dark[:, 80:].sum() > 0.5 * dark[:, left:80].sum()
    moved = poses.copy()
    moved[:, 0] += 0.4
    ghost = software_renderer.render_poses(model, poses, moved, size=SIZE, ghost=True)
    np.testing.assert_array_equal(_box(_coloured(ghost[0])), _box(_coloured(alone[0])))
    changed = np.abs(ghost[0].astype(int) - alone[0]).max(-1) > 8
    assert changed.sum() > 100 and _box(changed)[2] > _box(_coloured(alone[0]))[2] + 10


def test_hidden_ghosts_and_invalid_poses(model):
    poses = np.tile(model.qpos0, (1, 1))
    away = poses.copy()
    away[:, 1] -= 8.0  # behind the camera
    alone, ghost = (
        software_renderer.render_poses(model, poses, other, size=SIZE, ghost=True)
        for other in (None, away)
    )
    np.testing.assert_array_equal(alone, ghost)
    with pytest.raises(ValueError, match="1 poses, but 2 of the reference"):
        software_renderer.render_poses(model, poses, np.tile(poses, (2, 1)))
    with pytest.raises(ValueError, match="not finite"):
        software_renderer.render_poses(model, poses * np.nan)


def test_selected_frames_match_the_full_render(model):
    poses = np.tile(model.qpos0, (5, 1))
    poses[:, 0] = np.arange(5)
    every, some = (
        software_renderer.render_poses(model, poses, size=SIZE, frames=m) for m in (None, [0, 3])
    )
    np.testing.assert_array_equal(some, [every[0], every[3]])
    assert software_renderer.side_by_side(some).shape == (120, 320, 3)


@pytest.mark.parametrize(
    ("geom", "upwards"),
    [
        ('type="cylinder" size="0.1 0.3"', 0.3),
        ('type="box" size="0.1 0.1 0.3"', 0.3),
        ('type="capsule" size="0.1 0.3"', 0.4),
        ('type="ellipsoid" size="0.1 0.1 0.35"', 0.35),
        ('type="mesh" mesh="m"', 0.3),
    ],
)
def test_every_geom_type_is_drawn(geom, upwards):
    mesh = '<asset><mesh name="m" vertex="-.1 0 0 .1 0 0 0 -.1 0 0 .1 0 0 0 -.3 0 0 .3"/></asset>'
    xml = f"""<mujoco>{mesh}<worldbody><body pos="0 0 1"><freejoint/>
      <geom rgba="0.1 0.1 0.9 1" {geom}/>
      <geom size="2" group="3"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    body = primitives.model_shapes(model)
    (shape,) = primitives.place_shapes(
        body, geoms.body_poses(model, model.qpos0[None])
    )  # the large geom is for collisions only
    assert shape.points[:, 2].max() + shape.radius == pytest.approx(1 + upwards, abs=0.01)
    (image,) = software_renderer.render_poses(model, model.qpos0[None], size=SIZE)
    height = software_renderer.height(body)
    (view,) = camera.tracking_cameras(model.qpos0[None, :3], 0.0, height, SIZE)
    _, top, _, bottom = _box(_coloured(image))
    wide = view.focal * 2 * upwards / (3 * height)
    assert bottom - top == pytest.approx(wide, rel=0.25)


@pytest.mark.parametrize("geom", ['"cylinder" size="0.2 0.2"', '"ellipsoid" size="0.2 0.2 0.3"'])
def test_shapes_in_the_colour_of_the_ground_are_seen(geom):
    """Their sides differ in brightness by their angle to the sun, and all have an outline."""
    grey = " ".join(map(str, software_renderer._GROUND))
    xml = f"""<mujoco><worldbody><body pos="0 0 1" euler="90 0 0"><joint/>
      <geom rgba="{grey} 1" type={geom}/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    (image,) = software_renderer.render_poses(model, np.zeros((1, 1)), size=SIZE)
    x, y = SIZE[0] // 2, SIZE[1] // 2
    middle = image[y - 20 : y + 20, x - 20 : x + 20].mean(-1)  # without the shadow
    assert middle.max() - middle.min() > 10
