"""Images by MuJoCo's renderer: drawn where a graphics library is, else a hint is given."""

import contextlib
import types

import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.rendering import geoms, mujoco_renderer

XML = """<mujoco><worldbody><body pos="0 0 1"><freejoint/>
<geom size="0.3" rgba="0.9 0.1 0.1 1"/></body></worldbody></mujoco>"""


@pytest.mark.filterwarnings("ignore")  # libraries that find no screen say so in many ways
def test_a_ball_is_drawn_or_a_hint_is_given():
    model = mujoco.MjModel.from_xml_string(XML)
    lamp = model.vis.headlight.ambient.copy()
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
    np.testing.assert_array_equal(model.vis.headlight.ambient, lamp)


def test_what_is_moved_by_hand_is_drawn_where_it_was(monkeypatch):
    beside = '<body mocap="true" pos="9 9 9"><geom size="0.1"/></body></worldbody>'
    model = mujoco.MjModel.from_xml_string(XML.replace("</worldbody>", beside))
    qpos, drawn = np.tile(model.qpos0, (3, 1)), []
    place = np.arange(9.0).reshape(3, 1, 3)
    turn = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1, 1))
    seeing = types.SimpleNamespace(
        update_scene=lambda data, _: drawn.append((data.mocap_pos.copy(), data.xquat[2].copy())),
        render=lambda: np.zeros((1, 1, 3), np.uint8),
    )
    monkeypatch.setattr(mujoco_renderer, "_renderer", lambda *_: contextlib.nullcontext(seeing))
    mujoco_renderer.render_bodies(model, geoms.body_poses(model, qpos, place, turn), qpos, [0, 2])
    np.testing.assert_allclose([at for at, _ in drawn], place[[0, 2]])
    np.testing.assert_allclose([turned for _, turned in drawn], turn[[0, 2], 0])
