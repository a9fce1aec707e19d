"""The SMPL body: joint orders, rotation round trips, and PHC motions as AMASS fields."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.motion import smpl
from jaxrl.motion.formats.pickled import SmplMotion

# The tree of SMPL's own model file: the parent index of each joint.
PARENTS = [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]


def _poses(frames=5, seed=0):
    """Draw rotations of less than half a turn, whose axis-angles are unique."""
    vectors = np.random.default_rng(seed).normal(size=(frames, 24, 3))
    return (vectors * 3.0 / np.linalg.norm(vectors, axis=-1, keepdims=True)).reshape(frames, 72)


def test_joint_orders_and_tree():
    assert len(set(smpl.JOINTS)) == 24
    assert set(smpl.JOINTS) == set(smpl.MUJOCO_BODIES) == set(smpl.PARENT)
    named = [None if p < 0 else smpl.JOINTS[p] for p in PARENTS]
    assert [smpl.PARENT[name] for name in smpl.JOINTS] == named
    assert [smpl.JOINTS[i] for i in smpl.SMPL_TO_MUJOCO] == list(smpl.MUJOCO_BODIES)
    assert [smpl.MUJOCO_BODIES[i] for i in smpl.MUJOCO_TO_SMPL] == list(smpl.JOINTS)


def test_local_and_global_rotations_round_trip():
    poses = _poses()
    rotations = smpl.global_rotations(poses)
    assert rotations.shape == (5, 24, 4)
    np.testing.assert_allclose(smpl.local_poses(rotations), poses, atol=1e-12)


def test_global_rotations_equal_products_of_matrices():
    poses = _poses(2, seed=1)
    found = Rotation.from_quat(smpl.global_rotations(poses).reshape(-1, 4)).as_matrix()
    found = found.reshape(2, 24, 3, 3)
    # x to y, y to z, z to x: from lying on the back to standing.
    upright = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    for t in range(2):
        for j, name in enumerate(smpl.JOINTS):
            product, k = np.eye(3), j
            while k >= 0:
                product = Rotation.from_rotvec(poses[t, 3 * k : 3 * k + 3]).as_matrix() @ product
                k = PARENTS[k]
            body = smpl.MUJOCO_BODIES.index(name)
            np.testing.assert_allclose(found[t, body], product @ upright.T, atol=1e-12)


def test_upright_body_facing_x_has_identity_rotations():
    poses = np.zeros((1, 72))
    poses[0, :3] = Rotation.from_quat(smpl.UPRIGHT).as_rotvec()
    np.testing.assert_allclose(np.abs(smpl.global_rotations(poses)[..., 3]), 1.0)


@pytest.mark.parametrize("given", ["poses", "rotations", "both"])
def test_amass_fields(given):
    poses, trans = _poses(), np.random.default_rng(2).normal(size=(5, 3))
    motion = SmplMotion(
        name="walk",
        root=trans + [-0.0018, -0.2233, 0.0282],
        poses=None if given == "rotations" else poses,
        global_rotations=None if given == "poses" else smpl.global_rotations(poses),
        fps=30.0,
    )
    fields = smpl.amass_fields(motion)
    np.testing.assert_allclose(fields.trans, trans, atol=1e-12)
    np.testing.assert_allclose(fields.poses, poses, atol=1e-12)
    assert fields.fps == 30.0
