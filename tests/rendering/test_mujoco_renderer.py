"""Images by MuJoCo's renderer, or a hint where no graphics library is available."""

import contextlib
import types

import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.rendering import geoms, mujoco_renderer

XML = """<mujoco><worldbody><body pos="0 0 1"><freejoint/>
<geom size="0.3" rgba="0.9 0.1 0.1 1"/></body></worldbody></mujoco>"""


@pytest.mark.filterwarnings("ignore")  # graphics libraries without a display warn in many ways
def test_ball_is_drawn_or_a_hint_is_given():
    model = mujoco.MjModel.from_xml_string(XML)
    ambient_light = model.vis.headlight.ambient.copy()
    qpos = np.tile(model.qpos0, (3, 1))
    try:
        first, last = mujoco_renderer.render_bodies(
            model, geoms.body_poses(model, qpos), qpos, [0, 2], (160, 120)
        )
    except UserError as error:
        assert "--gl" in str(error) and "MUJOCO_GL=egl" in str(error)
        return
    assert first.shape == last.shape == (120, 160, 3)
    assert first[60, 80, 0] > first[60, 80, 2] + 60 and first[2, 2].max() < 30
    np.testing.assert_array_equal(model.vis.headlight.ambient, ambient_light)


def test_mocap_bodies_are_drawn_at_their_poses(monkeypatch):
    beside = '<body mocap="true" pos="9 9 9"><geom size="0.1"/></body></worldbody>'
    model = mujoco.MjModel.from_xml_string(XML.replace("</worldbody>", beside))
    qpos, drawn = np.tile(model.qpos0, (3, 1)), []
    position = np.arange(9.0).reshape(3, 1, 3)
    quaternion = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1, 1))
    renderer = types.SimpleNamespace(
        update_scene=lambda data, _: drawn.append((data.mocap_pos.copy(), data.xquat[2].copy())),
        render=lambda: np.zeros((1, 1, 3), np.uint8),
    )
    monkeypatch.setattr(mujoco_renderer, "_renderer", lambda *_: contextlib.nullcontext(renderer))
    mujoco_renderer.render_bodies(
        model, geoms.body_poses(model, qpos, position, quaternion), qpos, [0, 2]
    )
    np.testing.assert_allclose([at for at, _ in drawn], position[[0, 2]])
    np.testing.assert_allclose([rotation for _, rotation in drawn], quaternion[[0, 2], 0])
