"""Motion files: round trips, third-party layouts, and errors."""

import json
import pickle

import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion import formats, skeleton, synthetic
from jaxrl.motion.clip import Plan
from jaxrl.motion.formats import native

HINGED = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="pelvis" pos="0 0 1">ROOT<geom size="0.1"/>
      <body name="leg" pos="0 0 -0.3"><joint name="hip"/><geom size="0.1"/>
        <body name="foot" pos="0 0 -0.3"><joint name="knee" axis="0 1 0"/><geom size="0.1"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
FREE = '<freejoint name="root"/>'
SIX = """
<joint name="pelvis_tx" type="slide" axis="1 0 0"/>
<joint name="pelvis_tz" type="slide" axis="0 1 0"/>
<joint name="pelvis_ty" type="slide" axis="0 0 1"/>
<joint name="pelvis_tilt" axis="0 -1 0"/>
<joint name="pelvis_list" axis="1 0 0"/><joint name="pelvis_rotation" axis="0 0 1"/>
"""


def _hinged():
    return skeleton.describe(mujoco.MjModel.from_xml_string(HINGED.replace("ROOT", FREE)))


def _deepmimic(path, frames=3, loop="wrap", **changed):
    row = [0.1, 0.0, 0.9, 0.0, *[1, 0, 0, 0] * 4, 0.0, *[1, 0, 0, 0] * 2, 0.0]
    row += [1, 0, 0, 0, 0.0, *[1, 0, 0, 0] * 2, 0.0]
    content = {"Loop": loop, "Frames": [list(row) for _ in range(frames)]} | changed
    path.write_text(json.dumps(content))
    return content


def test_native_files_round_trip(tmp_path, bones):
    clip = synthetic.stepping(bones)._replace(name="a", fps=47.5)
    native.write(tmp_path / "a.npz", clip, bones)
    (found,) = formats.read(tmp_path / "a.npz", bones)
    assert found[:3] == clip[:3]
    np.testing.assert_allclose(found.qpos, clip.qpos, atol=1e-12)


def _planned(bones):
    clip = synthetic.stepping(bones)
    rng, count, model = np.random.default_rng(0), len(clip.qpos), bones.model
    qvel, feedforward = rng.normal(size=(count, model.nv)), rng.normal(size=(count, model.nu))
    return clip._replace(plan=Plan(clip.qpos + 0.01, qvel, feedforward, 5))


def test_plans_round_trip(tmp_path, bones):
    clip = _planned(bones)
    native.write(tmp_path / "a.npz", clip, bones)
    (found,) = formats.read(tmp_path / "a.npz", bones)
    for got, put in zip(found.plan, clip.plan, strict=True):
        np.testing.assert_array_equal(got, put)


def test_bad_plans_are_rejected(tmp_path, bones):
    path, clip = tmp_path / "a.npz", _planned(bones)
    native.write(path, clip, bones)
    good = dict(np.load(path))
    bad = {
        "'plan/feedforward' is missing": {"plan/feedforward": None},
        r"'plan/qvel' has the shape \[61, 3\]": {"plan/qvel": np.zeros((61, 3))},
        "'plan/qpos' has 61 frames, but 'root_position' has 60": {
            name: good[name][:60] for name in good if name.startswith(("root", "joint/"))
        },
        "its plan has numbers that are not finite": {
            "plan/feedforward": good["plan/feedforward"] * np.inf
        },
        "its plan is of a model of another order": {"joint_names": good["joint_names"][::-1]},
        "of a model of another order; plan": {
            "plan/actuator_names": good["plan/actuator_names"][::-1]
        },
    }
    for complaint, changed in bad.items():
        arrays = {name: value for name, value in (good | changed).items() if value is not None}
        np.savez(path, **arrays)
        with pytest.raises(UserError, match=complaint):
            formats.read(path, bones)


def test_folders_are_read_in_order(tmp_path, bones):
    for name in ("b", "a"):
        native.write(tmp_path / f"{name}.npz", synthetic.stepping(bones), bones)
    _deepmimic(tmp_path / "c.txt")
    (tmp_path / "README.md").write_text("no motion")
    assert [clip.name for clip in formats.read(tmp_path, bones)] == ["a", "b", "c"]


def test_deepmimic_frame_durations_are_respected(tmp_path, bones):
    """Y is up in the file; frames of 0.1 s and 0.3 s become steps of 1/30 s."""
    content = _deepmimic(tmp_path / "c.txt", loop="none")
    rows = content["Frames"]
    rows[1][0], rows[2][0] = 0.3, 0.0
    for i, x in enumerate((0.0, 1.0, 2.0)):
        rows[i][1:4] = [x, 0.9, -x]
        rows[i][20] = -x  # the right knee
    rows[2][4:8] = [np.cos(0.4), 0.0, np.sin(0.4), 0.0]  # turns left, about the vertical
    (tmp_path / "c.txt").write_text(json.dumps(content))
    (clip,) = formats.read(tmp_path / "c.txt", bones)
    assert not clip.loops and clip.qpos.shape == (13, 43)
    expected = np.concatenate([[0, 1 / 3, 2 / 3], 1 + np.arange(10) / 9])
    np.testing.assert_allclose(clip.qpos[:, 0], expected, atol=1e-9)
    np.testing.assert_allclose(clip.qpos[:, 1], expected, atol=1e-9)
    np.testing.assert_allclose(clip.qpos[:, 2], 0.9, atol=1e-9)
    np.testing.assert_allclose(clip.qpos[-1, 3:7], [np.cos(0.4), 0, 0, np.sin(0.4)], atol=1e-9)
    np.testing.assert_allclose(clip.qpos[:, bones.joint("right_knee").qpos], -expected, atol=1e-9)


def test_plain_files_with_six_root_joints_map_to_the_free_root(tmp_path):
    """The file's model has six root joints, ours has a free root."""
    theirs = mujoco.MjModel.from_xml_string(HINGED.replace("ROOT", SIX))
    qpos = np.random.default_rng(0).normal(size=(5, theirs.nq))
    names = [theirs.joint(i).name for i in range(theirs.njnt)]
    arrays = {f"q_{name}": qpos[:, i] for i, name in enumerate(names)}
    np.savez(tmp_path / "w.npz", **arrays, dq_hip=np.zeros(5))
    bones = _hinged()
    (clip,) = formats.read(tmp_path / "w.npz", bones, fps=50.0)
    assert clip.fps == 50.0
    a, b = mujoco.MjData(theirs), mujoco.MjData(bones.model)
    for i in range(5):
        a.qpos[:], b.qpos[:] = qpos[i], clip.qpos[i]
        mujoco.mj_kinematics(theirs, a)
        mujoco.mj_kinematics(bones.model, b)
        np.testing.assert_allclose(b.xpos, a.xpos, atol=1e-9)
        np.testing.assert_allclose(b.xmat, a.xmat, atol=1e-9)


def _amass(path, frames=2, **rotations):
    """Write SMPL in its rest pose (facing -y once upright), except for the given rotations."""
    numbers = {"root": 0, "left_knee": 4, "left_shoulder": 16, "right_elbow": 19, "spine": 6}
    poses = np.zeros((frames, 52, 3))
    poses[:, 0] = [np.pi / 2, 0, 0]  # y up becomes z up
    for name, rotation in rotations.items():
        poses[:, numbers[name]] = rotation
    trans = np.tile([0.0, 0.223, 0.93 - 0.028], (frames, 1))
    np.savez(path, poses=poses.reshape(frames, -1), trans=trans, mocap_framerate=120.0)


def _body_positions(clip, bones):
    data = mujoco.MjData(bones.model)
    data.qpos[:] = clip.qpos[0]
    mujoco.mj_kinematics(bones.model, data)
    return lambda name: data.body(name).xpos


def test_amass_rest_pose_has_arms_stretched_out(tmp_path, bones):
    _amass(tmp_path / "t.npz")
    (clip,) = formats.read(tmp_path / "t.npz", bones)
    assert clip.fps == 120.0
    at = _body_positions(clip, bones)
    np.testing.assert_allclose(at("root"), [0, 0, bones.model.qpos0[2]], atol=3e-3)
    arm = at("left_wrist") - at("left_shoulder")  # it faces -y, so its left is +x
    np.testing.assert_allclose(arm, [0.533735, 0, 0], atol=1e-6)
    np.testing.assert_allclose(at("right_wrist") - at("right_shoulder"), -arm, atol=1e-6)
    np.testing.assert_allclose((at("left_ankle") - at("left_hip"))[:2], 0.0, atol=1e-6)


def test_amass_limbs_bend_in_the_right_direction(tmp_path, bones):
    """Seen in SMPL's axes (x left, y up, z forward)."""
    _amass(
        tmp_path / "t.npz",
        left_knee=[np.pi / 2, 0, 0],
        right_elbow=[0, np.pi / 2, 0],
        left_shoulder=[0, 0, -np.pi / 2],
        spine=[0, 0, 0],
    )
    (clip,) = formats.read(tmp_path / "t.npz", bones)
    at = _body_positions(clip, bones)
    forward, down = np.array([0, -1, 0]), np.array([0, 0, -1])
    np.testing.assert_allclose(at("left_ankle") - at("left_knee"), -0.40987 * forward, atol=1e-6)
    forearm = at("right_wrist") - at("right_elbow")
    np.testing.assert_allclose(forearm, 0.258947 * forward, atol=1e-6)
    arm = at("left_wrist") - at("left_shoulder")
    np.testing.assert_allclose(arm, 0.533735 * down, atol=1e-6)


def test_files_of_another_skeleton_report_the_joint(tmp_path, bones):
    other = _hinged()
    qpos = np.tile(other.model.qpos0, (3, 1))
    native.write(tmp_path / "h.npz", synthetic.stepping(bones)._replace(qpos=qpos), other)
    with pytest.raises(UserError, match=r"h.npz': joint 'chest' is missing"):
        formats.read(tmp_path / "h.npz", bones)
    _deepmimic(tmp_path / "c.txt")
    with pytest.raises(UserError, match=r"c.txt' moves a ball joint 'chest'.*no joint"):
        formats.read(tmp_path / "c.txt", other)
    _amass(tmp_path / "t.npz")
    with pytest.raises(UserError, match=r"t.npz' moves a ball joint 'chest'"):
        formats.read(tmp_path / "t.npz", other)
    renamed = bones._replace(bodies=("pelvis", *bones.bodies[1:]))
    native.write(tmp_path / "r.npz", synthetic.stepping(bones), renamed)
    with pytest.raises(UserError, match="another skeleton: it has no body 'root'"):
        formats.read(tmp_path / "r.npz", bones)
    np.savez(tmp_path / "q.npz", q_hip=np.zeros(3), q_knie=np.zeros(3))
    with pytest.raises(UserError, match="joint 'knee' is missing. Did you mean 'knie'"):
        formats.read(tmp_path / "q.npz", other)


def test_paths_without_motions_are_rejected(tmp_path, bones):
    with pytest.raises(UserError, match="no such file"):
        formats.read(tmp_path / "none.txt", bones)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="a folder without motion files"):
        formats.read(tmp_path / "empty", bones)
    (tmp_path / "a.bvh").write_text("HIERARCHY")
    with pytest.raises(UserError, match="not in '.bvh'"):
        formats.read(tmp_path / "a.bvh", bones)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no motion file of DeepMimic's"),
        ("[]", "'Frames' is missing"),
        ('{"Frames": [[0.1, 2.0]]}', "frame 0 has 2 numbers; the humanoid has 44"),
        (json.dumps({"Frames": [["x"] * 44] * 2}), "other than numbers"),
        (json.dumps({"Frames": [[10**400] * 44] * 2}), "other than numbers"),
        ("[" * 100_000, "no motion file of DeepMimic's"),
        (json.dumps({"Frames": []}), "0 frame"),
        (json.dumps({"Frames": [[0.0] * 44] * 3}), "'root' in frame 0 has the length 0"),
    ],
)
def test_bad_deepmimic_files_are_rejected(tmp_path, bones, text, message):
    (tmp_path / "c.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        formats.read(tmp_path / "c.txt", bones)


@pytest.mark.parametrize("duration", [0.0, float("inf"), 1e9])
def test_bad_durations_are_rejected(tmp_path, bones, duration):
    content = _deepmimic(tmp_path / "c.txt")
    content["Frames"][1][0] = duration
    (tmp_path / "c.txt").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"frame 1 lasts {duration} s"):
        formats.read(tmp_path / "c.txt", bones)


def test_bad_arrays_are_rejected(tmp_path, bones):
    path = tmp_path / "a.npz"
    path.write_bytes(pickle.dumps({"poses": 1}))
    with pytest.raises(UserError, match="Pickles are never read"):
        formats.read(path, bones)
    np.savez(path, poses=np.array([{"a": 1}], object))
    with pytest.raises(UserError, match="'poses' cannot be read.*Pickles are never read"):
        formats.read(path, bones)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(UserError, match="has an unknown format"):
        formats.read(path, bones)
    np.savez(path, poses=np.zeros((3, 12)), trans=np.zeros((3, 3)))
    with pytest.raises(UserError, match="at least 66 numbers"):
        formats.read(path, bones)
    np.savez(path, poses=np.zeros((3, 156)), trans=np.zeros((2, 3)))
    with pytest.raises(UserError, match="'trans' has 2 frames, but 'poses' has 3"):
        formats.read(path, bones)
    np.savez(path, format=np.array("jaxrl-motion-9"))
    with pytest.raises(UserError, match="jaxrl-motion-9"):
        formats.read(path, bones)
    native.write(path, synthetic.stepping(bones), bones)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match="cannot be read"):
        formats.read(path, bones)


def test_native_files_without_frames_are_rejected(tmp_path, bones):
    path, clip = tmp_path / "a.npz", synthetic.stepping(bones)
    native.write(path, clip._replace(qpos=clip.qpos[:0]), bones)
    with pytest.raises(UserError, match=r"0 frames"):
        formats.read(path, bones)
    np.savez(path, format=np.array([]))
    with pytest.raises(UserError, match="has the format ''"):
        formats.read(path, bones)
