"""Fallen poses: the humanoid lies at rest, in many ways."""

import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion import fallen, ground
from jaxrl.motion.humanoid import Humanoid


@pytest.fixture(scope="module")
def humanoid(model):
    return Humanoid(model, 30.0, 3)


def test_humanoid_lies_on_the_ground(humanoid):
    poses = fallen.poses(humanoid, 12)
    assert poses.shape == (12, humanoid.model.nq)
    np.testing.assert_array_equal(poses[:, :2], 0.0)
    assert poses[:, 2].max() < 0.4 * humanoid.model.qpos0[2]
    np.testing.assert_allclose(np.linalg.norm(poses[:, 3:7], axis=1), 1.0, atol=1e-5)
    lowest = ground.lowest_points(humanoid.model, poses.astype(np.float64))
    assert lowest.min() > -0.05 and lowest.max() < 0.02
    # On the back, the front and the sides: where the chest's x axis points.
    w, x, y, z = poses[:, 3:7].T
    up = 2.0 * (x * z - w * y)
    assert up.min() < -0.5 and up.max() > 0.5
    np.testing.assert_array_equal(poses[:3], fallen.poses(humanoid, 3))
    assert np.abs(fallen.poses(humanoid, 3, seed=1) - poses[:3]).max() > 0.1


def test_a_model_that_cannot_lie_is_refused(humanoid, monkeypatch):
    standing = humanoid.model.qpos0.copy()
    monkeypatch.setattr(fallen, "_fall", lambda *_: standing)
    with pytest.raises(UserError, match="of 20 falls of this model only 0 end lying"):
        fallen.poses(humanoid, 2)
