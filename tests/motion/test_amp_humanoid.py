"""Motions of the IsaacGymEnvs and MimicKit humanoid against models built from their files."""

import pickle

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.clips import convert
from jaxrl.errors import UserError
from jaxrl.motion import amp_humanoid, formats
from jaxrl.motion.formats.pickled import RowMotion, SkeletonMotion

OURS = {"pelvis": "root", "torso": "chest", "head": "neck"}
for _side in ("right", "left"):
    _parts = {"upper_arm": "shoulder", "lower_arm": "elbow", "hand": "wrist"}
    _parts |= {"thigh": "hip", "shin": "knee", "foot": "ankle"}
    OURS |= {f"{_side}_{theirs}": f"{_side}_{ours}" for theirs, ours in _parts.items()}


def _tree(out=False):
    """Return (body, parent, offset) in the order of their model files."""
    tree = [
        ("pelvis", None, (0, 0, 0)),
        ("torso", "pelvis", (0, 0, 0.236151)),
        ("head", "torso", (0, 0, 0.223894)),
    ]
    for side, y in (("right", -1), ("left", 1)):
        arm = np.array([0, y, 0]) if out else np.array([0, 0, -1])
        tree += [
            (f"{side}_upper_arm", "torso", (-0.02405, 0.18311 * y, 0.2435)),
            (f"{side}_lower_arm", f"{side}_upper_arm", tuple(0.274788 * arm)),
            (f"{side}_hand", f"{side}_lower_arm", tuple(0.258947 * arm)),
        ]
    for side, y in (("right", -1), ("left", 1)):
        tree += [
            (f"{side}_thigh", "pelvis", (0, 0.084887 * y, 0)),
            (f"{side}_shin", f"{side}_thigh", (0, 0, -0.421546)),
            (f"{side}_foot", f"{side}_shin", (0, 0, -0.40987)),
        ]
    return tree


def _positions(tree, root, rotations):
    """Return body positions by matrix products; `rotations` maps bodies to local rotations."""
    found, frames = {}, {}
    for body, parent, offset in tree:
        base, frame = (root, np.eye(3)) if parent is None else (found[parent], frames[parent])
        found[body] = base + frame @ np.array(offset)
        frames[body] = frame @ rotations.get(body, Rotation.identity()).as_matrix()
    return found


def _random_pose(seed, out=False):
    """Draw local rotations of one pose; knees and elbows bend about their hinges only."""
    rng = np.random.default_rng(seed)
    rotations = {body: Rotation.random(rng=rng) for body, _, _ in _tree() if "hand" not in body}
    for side, sign in (("right", 1), ("left", -1)):
        elbow = [0, 0, sign] if out else [0, -1, 0]
        rotations[f"{side}_lower_arm"] = Rotation.from_rotvec(
            rng.uniform(0.1, 2.5) * np.array(elbow)
        )
        rotations[f"{side}_shin"] = Rotation.from_rotvec([0, rng.uniform(0.1, 2.5), 0])
    return rotations


def _skeleton_motion(tree, poses, root, local=True):
    names = [body for body, _, _ in tree]
    parents = [names.index(parent) if parent else -1 for _, parent, _ in tree]
    rows = []
    for rotations in poses:
        each = [rotations.get(name, Rotation.identity()) for name in names]
        for i, parent in enumerate(parents):
            if not local and parent >= 0:
                each[i] = each[parent] * each[i]
        rows.append([rotation.as_quat() for rotation in each])
    offsets = np.array([offset for _, _, offset in tree], float)
    return SkeletonMotion(
        "m", tuple(names), np.array(parents), offsets, np.array(rows), local, root, 60.0
    )


def _check(clip, bones, tree, root, poses):
    data = mujoco.MjData(bones.model)
    for i, rotations in enumerate(poses):
        data.qpos[:] = clip.qpos[i]
        mujoco.mj_kinematics(bones.model, data)
        for body, position in _positions(tree, root[i], rotations).items():
            np.testing.assert_allclose(
                data.body(OURS[body]).xpos, position, atol=1e-6, err_msg=body
            )


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("out", [False, True])
def test_skeleton_motion_body_positions_match_its_tree(bones, out, local):
    poses, root = (
        [_random_pose(seed, out) for seed in range(3)],
        np.random.default_rng(0).normal(0, 1, (3, 3)),
    )
    motion = _skeleton_motion(_tree(out), poses, root, local)
    clip = amp_humanoid.from_skeleton_motion(motion, bones)
    assert (clip.name, clip.fps, clip.loops) == ("m", 60.0, False)
    _check(clip, bones, _tree(out), root, poses)
    assert (clip.qpos[:, bones.joint("right_knee").qpos] < 0).all()
    assert (clip.qpos[:, bones.joint("left_elbow").qpos] > 0).all()


def _row(root, rotations):
    parts = [root, rotations["pelvis"].as_rotvec(), rotations["torso"].as_rotvec()]
    parts += [rotations["head"].as_rotvec()]
    for side in ("right", "left"):
        parts += [
            rotations[f"{side}_upper_arm"].as_rotvec(),
            rotations[f"{side}_lower_arm"].as_rotvec()[2:],
        ]
    for side in ("right", "left"):
        parts += [
            rotations[f"{side}_thigh"].as_rotvec(),
            rotations[f"{side}_shin"].as_rotvec()[1:2],
        ]
        parts += [rotations[f"{side}_foot"].as_rotvec()]
    return np.concatenate(parts)


def test_row_motion_body_positions_match_mimickits_model(bones):
    poses, root = (
        [_random_pose(seed, out=True) for seed in range(3)],
        np.random.default_rng(1).normal(0, 1, (3, 3)),
    )
    rows = np.stack([_row(*pair) for pair in zip(root, poses, strict=True)])
    clip = amp_humanoid.from_rows(RowMotion("m", rows, True, 30.0), bones)
    assert clip.loops
    _check(clip, bones, _tree(out=True), root, poses)


def test_root_translation_scales_with_leg_length(bones):
    tree = [(body, parent, tuple(2 * np.array(offset))) for body, parent, offset in _tree()]
    root = np.array([[0.0, 0, 1.7], [2.0, 0, 1.7]])
    clip = amp_humanoid.from_skeleton_motion(_skeleton_motion(tree, [{}, {}], root), bones)
    np.testing.assert_allclose(clip.qpos[:, :3], root / 2)


def test_unknown_skeletons_are_rejected(bones):
    motion = _skeleton_motion(_tree(), [{}, {}], np.zeros((2, 3)))
    renamed = tuple(name.replace("shin", "shins") for name in motion.bodies)
    with pytest.raises(UserError, match="'right_shin' is missing. Did you mean 'right_shins'"):
        amp_humanoid.from_skeleton_motion(motion._replace(bodies=renamed), bones)
    forward = motion.offsets.copy()
    forward[motion.bodies.index("right_lower_arm")] = [0.27, 0, 0]
    with pytest.raises(UserError, match=r"right forearm is at \[0.27, 0.0, 0.0\]"):
        amp_humanoid.from_skeleton_motion(motion._replace(offsets=forward), bones)


def test_convert_reads_both_layouts(tmp_path, bones):
    motion = _skeleton_motion(_tree(), [{}, {}], np.array([[0, 0, 0.9], [0.1, 0, 0.9]]))
    contents = {
        "rotation": {"arr": motion.rotations},
        "root_translation": {"arr": motion.root},
        "skeleton_tree": {
            "node_names": list(motion.bodies),
            "parent_indices": {"arr": motion.parents},
            "local_translation": {"arr": motion.offsets},
        },
        "is_local": True,
        "fps": 60,
    }
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "amp.npy", contents, allow_pickle=True)
    rows = [[0.0] * 34] * 2
    (tmp_path / "in" / "kit.pkl").write_bytes(
        pickle.dumps({"loop_mode": 1, "fps": 30, "frames": rows})
    )
    assert convert.main([str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    amp, kit = formats.read(tmp_path / "out", bones)
    assert (amp.name, amp.fps, kit.name, kit.loops) == ("amp", 60.0, "kit", True)
    np.testing.assert_allclose(amp.qpos[1, :4], [0.1, 0, 0.9, 1])
