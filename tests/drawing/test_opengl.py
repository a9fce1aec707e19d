"""Pictures by MuJoCo's renderer: drawn where a graphics library is, else a hint is given."""

import mujoco
import numpy as np
import pytest

from jaxrl.drawing import opengl, parts
from jaxrl.errors import UserError

XML = """<mujoco><worldbody><body pos="0 0 1"><freejoint/>
<geom size="0.3" rgba="0.9 0.1 0.1 1"/></body></worldbody></mujoco>"""


@pytest.mark.filterwarnings("ignore")  # libraries that find no screen say so in many ways
def test_a_ball_is_drawn_or_a_hint_is_given():
    model = mujoco.MjModel.from_xml_string(XML)
    lamp = model.vis.headlight.ambient.copy()
    qpos = np.tile(model.qpos0, (3, 1))
    try:
        first, last = opengl.paint(model, parts.bodies(model, qpos), qpos, [0, 2], (160, 120))
    except UserError as error:
        assert "--gl" in str(error) and "MUJOCO_GL=egl" in str(error)
        return
    assert first.shape == last.shape == (120, 160, 3)
    assert first[60, 80, 0] > first[60, 80, 2] + 60 and first[2, 2].max() < 30
    np.testing.assert_array_equal(model.vis.headlight.ambient, lamp)
