"""Clip statistics of a hand-made clip, and the inspect command."""

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from jaxrl.clips import inspect
from jaxrl.motion import formats, skeleton, synthetic
from jaxrl.motion.clip import Clip, Plan
from jaxrl.motion.clip_stats import LimitViolation, compute
from jaxrl.motion.formats import native


def _faulty(bones):
    """Stand 4 cm below the ground, drift at 0.5 m/s, nod at 3 rad/s and bend a knee forwards."""
    clip = Clip("made", 10.0, False, np.tile(bones.model.qpos0, (11, 1)))
    clip.qpos[:, 0] = np.linspace(0.0, 0.3, 11)
    clip.qpos[:, 1] = np.linspace(0.0, 0.4, 11)
    clip.qpos[:, 2] += np.linspace(0.0, 0.1, 11) - 0.04
    neck = Rotation.from_rotvec(np.outer(0.3 * np.arange(11), [0.6, 0.0, 0.8]))
    clip.qpos[:, bones.joint("neck").columns] = neck.as_quat(scalar_first=True)
    clip.qpos[3:6, bones.joint("left_knee").qpos] = [0.1, 0.2, 0.1]
    return clip


def test_statistics_of_a_hand_made_clip(bones):
    found = compute(_faulty(bones), bones)
    assert found[:5] == ("made", 1.0, 11, 10.0, False)
    assert found.speed == pytest.approx(0.5)
    height = bones.model.qpos0[2]
    assert found.root_heights == pytest.approx((height - 0.04, height + 0.06))
    assert found.violations == (LimitViolation("left_knee", pytest.approx(0.2), 3),)
    assert found.lowest == pytest.approx(-0.04, abs=1e-4)
    assert found.lowest_grounded == pytest.approx(0.0, abs=1e-4)
    assert found.fastest == ("neck", pytest.approx(3.0))


def test_limits_of_ball_joints_are_angles(tmp_path):
    text = skeleton.HUMANOID.read_text()
    path = tmp_path / "limited.xml"
    path.write_text(
        text.replace('name="neck" type="ball"', 'name="neck" type="ball" range="0 0.5"')
    )
    bones = skeleton.describe(skeleton.load_model(str(path)))
    found = compute(_faulty(bones), bones)
    # Angles go from 0 to 3.0 in steps of 0.3, below half a turn.
    assert found.violations[0] == LimitViolation("neck", pytest.approx(2.5), 9)


def test_synthetic_stepping_has_no_violations(bones):
    found = compute(synthetic.stepping(bones), bones)
    assert found.loops and not found.violations
    assert abs(found.lowest) < 1e-3


def test_single_clip_report(tmp_path, bones, capsys):
    native.write(tmp_path / "made.npz", _faulty(bones), bones)
    assert inspect.main([str(tmp_path / "made.npz")]) == 0
    text = capsys.readouterr().out
    for part in ("1.00 s, 11 frames at 10 per", "0.50 m/s", "-0.040 m", "neck, 3.0 rad/s"):
        assert part in text
    assert "jaxrl.clips.plan makes one" in text
    assert "left_knee: by up to 0.200 rad, in 3 of 11 frames" in text


def test_folder_report_has_one_row_per_clip(tmp_path, bones, capsys):
    planned = _faulty(bones)
    zeros = [np.zeros((11, size)) for size in (bones.model.nv, bones.model.nu)]
    planned = planned._replace(plan=Plan(planned.qpos, *zeros, 5))
    native.write(tmp_path / "a.npz", planned, bones)
    native.write(tmp_path / "b.npz", synthetic.stepping(bones), bones)
    assert inspect.main([str(tmp_path)]) == 0
    header, a, b = capsys.readouterr().out.splitlines()
    assert len(header) == len(a) == len(b)
    assert a.split()[:7] == ["a", "1.00", "11", "10", "no", "yes", "0.50"]
    assert b.split()[4:6] == ["yes", "no"]  # loops, no plan
    assert a.endswith("left_knee 0.20 (3)") and b.endswith("none")


def test_gif_and_png_output(tmp_path, bones, capsys):
    native.write(tmp_path / "a.npz", synthetic.stepping(bones), bones)
    path = str(tmp_path / "a.npz")
    assert inspect.main([path, "--out", str(tmp_path / "new" / "a.gif"), "--seconds", "0.2"]) == 0
    assert "0.20 s of 2.00 s drawn" in capsys.readouterr().out
    with Image.open(tmp_path / "new" / "a.gif") as image:
        assert image.size == (480, 360)
        assert (image.n_frames, image.info["duration"]) == (6, 40)
    assert inspect.main([path, "--out", str(tmp_path / "a.png")]) == 0
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (6 * 240, 360)


def test_without_arguments_lists_sources_of_clips(capsys):
    assert inspect.main([]) == 0
    text = capsys.readouterr().out
    assert "xbpeng/DeepMimic" in text and "pybullet" in text and "stepping" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.txt"], "no such file"),
        (["--out", "a.mp4"], "must end in .gif or .png"),
        (["--seconds", "0"], "--seconds must be greater than 0"),
        (["--seconds", "inf"], "--seconds must be greater than 0, not inf"),
        (["FOLDER", "--out", "a.gif"], "draws one clip, but there are 2"),
        (["--model", str(skeleton.HUMANOID)], "a clip for it is needed"),
    ],
)
def test_invalid_arguments_are_rejected(tmp_path, bones, capsys, arguments, complaint):
    for name in "ab":
        native.write(tmp_path / f"{name}.npz", synthetic.stepping(bones), bones)
    arguments = [str(tmp_path) if word == "FOLDER" else word for word in arguments]
    assert inspect.main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_statistics_of_captured_walk_and_run(motions, bones):
    speeds = {"walk": 0.98, "run": 3.56}
    for name, speed in speeds.items():
        (clip,) = formats.read(motions / f"humanoid3d_{name}.txt", bones)
        found = compute(clip, bones)
        assert found.speed == pytest.approx(speed, abs=0.01)
        assert found.lowest < 0 and found.lowest_grounded == pytest.approx(0.0, abs=1e-3)
