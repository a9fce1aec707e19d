"""The command that converts pickled motions to pickle-free files."""

import pickle

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.clips import convert
from jaxrl.motion import formats, smpl


def _clip(frames=30, **changes):
    poses = np.zeros((frames, 72))
    poses[:, :3] = Rotation.from_quat(smpl.UPRIGHT).as_rotvec()
    root = np.linspace([0.0, 0.0, 0.95], [1.0, 0.0, 0.95], frames)
    return {"root_trans_offset": root, "pose_aa": poses, "fps": 30} | changes


def _write(path, contents):
    path.write_bytes(pickle.dumps(contents))
    return path


def test_convert_file_with_several_clips(tmp_path, bones, capsys):
    source = _write(tmp_path / "in.pkl", {"0-walk": _clip(31), "0-run": _clip(61)})
    out = tmp_path / "new" / "out"
    assert convert.main([str(source), str(out)]) == 0
    found = formats.read(out, bones)
    assert [(clip.name, clip.seconds) for clip in found] == [("0-run", 2.0), ("0-walk", 1.0)]
    assert "2 motions, 3.0 s" in capsys.readouterr().out


def test_convert_folder(tmp_path):
    for name in ("b", "a"):
        _write(tmp_path / f"{name}.pkl", {name: _clip()})
    (tmp_path / "notes.txt").write_text("not a motion")
    assert convert.main([str(tmp_path), str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.npz", "b.npz"]


def test_existing_files_are_not_overwritten(tmp_path, capsys):
    source = _write(tmp_path / "in.pkl", {"new": _clip(), "walk": _clip()})
    (tmp_path / "walk.npz").write_text("a plan, say")
    assert convert.main([str(source), str(tmp_path)]) == 2
    assert "walk.npz' exists already" in capsys.readouterr().err
    assert (tmp_path / "walk.npz").read_text() == "a plan, say"
    assert not (tmp_path / "new.npz").exists()


def test_file_names_cannot_leave_the_folder():
    names = ["walk", "Walk", "walk", "../../etc/x", "/root/x", "..", "", "a b\n", "x" * 300]
    found = convert.file_names(names)
    assert found[:4] == ["walk", "Walk-2", "walk-3", "_.._etc_x"]
    assert found[4:8] == ["_root_x", "motion", "motion-2", "a_b_"]
    assert len(found[8]) == 100
    assert all("/" not in name and not name.startswith(".") for name in found)


@pytest.mark.parametrize(
    "name, contents, complaint",
    [
        ("in.pkl", {"a": _clip(), "bad": _clip(fps=0)}, "in.pkl: bad: 'fps' is 0"),
        (
            "in.pkl",
            {"loop_mode": 0, "fps": 30, "frames": [[0.0] * 35] * 2},
            "'in': 35 numbers a row",
        ),
        ("in.pkl", {"a": _clip(), "short": _clip(1)}, "'short': 1 frame;"),
        ("in.pkl", print, "refers to 'builtins.print'"),
        ("absent", None, "absent': no such file or folder"),
        ("", None, "a folder without .pkl or .npy files"),
    ],
)
def test_bad_input_is_rejected_and_nothing_is_written(tmp_path, capsys, name, contents, complaint):
    """The error gives the reason, and not even valid clips are written."""
    folder = tmp_path / "data"
    folder.mkdir()
    if contents is not None:
        _write(folder / name, contents)
    assert convert.main([str(folder / name), str(tmp_path / "out")]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_converted_root_motion_matches_the_pickle(tmp_path):
    """An upright body moves one metre along x within a second."""
    source = _write(tmp_path / "in.pkl", {"0-slide": _clip()})
    assert convert.main([str(source), str(tmp_path)]) == 0
    with np.load(tmp_path / "0-slide.npz", allow_pickle=False) as found:
        assert found["fps"] == 30.0
        displacement = found["root_position"][-1] - found["root_position"][0]
        assert displacement[0] == pytest.approx(1.0, abs=0.2)  # scaled by leg length
        np.testing.assert_allclose(displacement[1:], 0.0, atol=1e-6)
        np.testing.assert_allclose(np.abs(found["root_rotation"][:, 0]), 1.0, atol=1e-6)
