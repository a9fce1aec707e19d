"""The three layouts of pickled motions, and validation of their contents."""

import pickle
from collections import OrderedDict

import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion.formats import pickled
from tests.helpers import pickle_files as craft

RNG = np.random.default_rng(0)
FRAMES = 6


def _unit(*shape):
    quaternions = RNG.normal(size=(*shape, 4))
    return quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True)


def _phc(**changes):
    clip = {
        "root_trans_offset": RNG.normal(size=(FRAMES, 3)),
        "pose_aa": RNG.normal(size=(FRAMES, 72)),
        "pose_quat_global": _unit(FRAMES, 24),
        "beta": np.zeros(16),
        "gender": "neutral",
        "fps": 30,
    } | changes
    return {key: value for key, value in clip.items() if value is not None}


def _isaac_gym(**changes):
    def poselib(array):
        return OrderedDict(arr=array, context=OrderedDict(dtype=array.dtype.name))

    fields = {
        "rotation": poselib(_unit(FRAMES, 3).astype(np.float32)),
        "root_translation": poselib(np.ones((FRAMES, 3), np.float32)),
        "global_velocity": poselib(np.zeros((FRAMES, 3, 3), np.float32)),
        "skeleton_tree": OrderedDict(
            node_names=["pelvis", "torso", "head"],
            parent_indices=poselib(np.array([-1, 0, 1])),
            local_translation=poselib(np.eye(3, dtype=np.float32)),
        ),
        "is_local": True,
        "fps": np.array(60),
        "__name__": "SkeletonMotion",
    } | changes
    return OrderedDict(fields)


def _mimickit(**changes):
    rows = [[float(i + j) for j in range(34)] for i in range(FRAMES)]
    return {"loop_mode": 1, "fps": 30, "frames": rows} | changes


def _read(tmp_path, contents, name="motion.pkl"):
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, contents, allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(contents))
    return pickled.read(path)


def test_phc(tmp_path):
    """As PHC writes it: joblib, compressed, the root translation as a tensor."""
    first, second = _phc(), _phc(pose_quat_global=None, fps=np.int64(60))
    root = first["root_trans_offset"]
    with craft.pretended_torch():
        data = craft.joblib_dump(
            {"0-CMU_05_06": first | {"root_trans_offset": craft.Tensor(root)}, "1-b": second}
        )
    (tmp_path / "two.pkl").write_bytes(data)
    a, b = pickled.read(tmp_path / "two.pkl")
    assert (a.name, a.fps, b.name, b.fps) == ("0-CMU_05_06", 30.0, "1-b", 60.0)
    np.testing.assert_array_equal(a.root, root)
    np.testing.assert_array_equal(a.poses, first["pose_aa"])
    np.testing.assert_array_equal(a.global_rotations, first["pose_quat_global"])
    assert b.global_rotations is None


@pytest.mark.parametrize("fps", [60, 59.94, np.array(16), np.float32(30)])
def test_isaac_gym(tmp_path, fps):
    contents = _isaac_gym(fps=fps)
    (motion,) = _read(tmp_path, contents, "amp_humanoid_walk.npy")
    assert motion.name == "amp_humanoid_walk"
    assert motion.bodies == ("pelvis", "torso", "head")
    assert motion.parents.tolist() == [-1, 0, 1]
    assert motion.local is True
    assert motion.fps == pytest.approx(float(fps))
    np.testing.assert_array_equal(motion.offsets, np.eye(3))
    np.testing.assert_array_equal(motion.rotations, contents["rotation"]["arr"])
    np.testing.assert_array_equal(motion.root, np.ones((FRAMES, 3)))


@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("loop_mode", [0, 1])
def test_mimickit(tmp_path, as_array, loop_mode):
    rows = _mimickit()["frames"]
    frames = np.array(rows) if as_array else rows
    (motion,) = _read(tmp_path, _mimickit(frames=frames, loop_mode=loop_mode))
    np.testing.assert_array_equal(motion.rows, rows)
    assert motion.loops is (loop_mode == 1)
    assert motion.fps == 30.0


BAD = np.zeros((FRAMES, 72))
BAD[4, 7] = np.inf


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"pose_aa": None, "pose_quat_global": None}, "neither 'pose_aa' nor 'pose_quat_global'"),
        ({"root_trans_offset": None}, "'root_trans_offset' is missing"),
        ({"root_trans_offset": None, "root_trans_ofset": 1}, "Did you mean 'root_trans_ofset'"),
        ({"root_trans_offset": [1, 2, 3]}, "'root_trans_offset' is a list, not an array"),
        ({"root_trans_offset": np.zeros((0, 3))}, r"shape \(0, 3\), not \(any, 3\)"),
        (
            {"pose_aa": np.zeros((FRAMES, 156))},
            r"'pose_aa' has the shape \(6, 156\), not \(6, 72\)",
        ),
        ({"pose_aa": np.zeros((FRAMES - 1, 72))}, r"'pose_aa' has the shape \(5, 72\)"),
        ({"pose_aa": BAD}, "'pose_aa' is not finite in row 4"),
        ({"pose_aa": np.full((FRAMES, 72), "x")}, "'pose_aa' is a ndarray, not an array of num"),
        ({"pose_quat_global": np.zeros((FRAMES, 24, 4))}, "no rotation in frame 0"),
        ({"fps": None}, "'fps' is None, not a number"),
        ({"fps": 0}, "'fps' is 0"),
        ({"fps": True}, "'fps' is True"),
        ({"fps": float("nan")}, "'fps' is nan"),
        ({"fps": "30"}, "'fps' is 30, not a number"),
    ],
)
def test_invalid_phc_contents_are_rejected(tmp_path, changes, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        _read(tmp_path, {"good": _phc(), "bad clip": _phc(**changes)})
    assert str(error.value).startswith("motion.pkl: bad clip: ")


def _tree(**changes):
    return {"skeleton_tree": _isaac_gym()["skeleton_tree"] | changes}


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"skeleton_tree": 3}, "'skeleton_tree' is no dict"),
        (_tree(node_names="abc"), "no list of names"),
        (_tree(parent_indices={"arr": np.array([-1, 2, 1])}), "parent before each of its bodies"),
        (_tree(parent_indices={"arr": np.array([0, 0, 1])}), "parent before each of its bodies"),
        (_tree(local_translation={"arr": np.zeros((2, 3))}), "'local_translation' has the shape"),
        ({"rotation": {"arr": np.ones((FRAMES, 3, 4))}}, "'rotation' is no rotation in frame 0"),
        ({"rotation": {}}, "'rotation' is a NoneType"),
        ({"root_translation": {"arr": np.zeros((FRAMES + 1, 3))}}, "'root_translation' has the sh"),
    ],
)
def test_invalid_isaac_gym_contents_are_rejected(tmp_path, changes, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        _read(tmp_path, _isaac_gym(**changes), "walk.npy")
    assert "walk.npy" in str(error.value)


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"loop_mode": 2}, "'loop_mode' is 2"),
        ({"loop_mode": None}, "'loop_mode' is None"),
        ({"frames": []}, "'frames' has the shape"),
        ({"frames": [[0.0] * 5]}, "a root alone has 6"),
        ({"frames": [[0.0] * 8, [0.0] * 7]}, "7 numbers in row 1, 8 in row 0"),
        ({"frames": [[0.0] * 8, ["x"] * 8]}, "not numbers in row 1"),
        ({"frames": [[[0.0]] * 8]}, "not numbers in row 0"),
        ({"frames": [[0.0] * 7 + [float("nan")]]}, "not finite in row 0"),
        ({"frames": "walk"}, "'frames' is a str"),
    ],
)
def test_invalid_mimickit_contents_are_rejected(tmp_path, changes, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        _read(tmp_path, _mimickit(**changes))
    assert "motion.pkl" in str(error.value)


@pytest.mark.parametrize("contents", [{}, [], 3, "motion", {"a": 1}, np.zeros(3), None])
def test_unknown_contents_are_rejected(tmp_path, contents):
    with pytest.raises(UserError, match=r"motion.pkl' holds a .* and no motion of a known layout"):
        _read(tmp_path, contents)
