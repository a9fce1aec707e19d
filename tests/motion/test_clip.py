"""Clips: captured speeds, resampling, cycles, ground contact and validation."""

import json

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.errors import UserError
from jaxrl.motion import clip as clips
from jaxrl.motion import formats, ground, synthetic
from jaxrl.motion.clip import Clip


def _captured(motions, bones, name="walk"):
    return formats.read(motions / f"humanoid3d_{name}.txt", bones)[0]


@pytest.mark.parametrize(("name", "speed"), [("walk", 0.98), ("run", 3.56)])
def test_speeds_and_lengths_of_captured_clips(motions, bones, name, speed):
    clip = _captured(motions, bones, name)
    content = json.loads((motions / f"humanoid3d_{name}.txt").read_text())
    assert clip.seconds == pytest.approx(sum(row[0] for row in content["Frames"]), abs=1e-3)
    displacement = clip.qpos[-1, :2] - clip.qpos[0, :2]
    assert displacement[0] / clip.seconds == pytest.approx(speed, abs=0.01)
    assert abs(displacement[1]) < 0.05  # straight ahead
    assert clip.loops


def test_captured_walk_is_upright_and_on_the_ground(motions, bones, model):
    clip = _captured(motions, bones)
    assert 0.845 < clip.qpos[:, 2].min() < clip.qpos[:, 2].max() < 0.875
    knees = [bones.joint(f"{side}_knee").qpos for side in ("left", "right")]
    assert (clip.qpos[:, knees] <= 0).all()
    low = ground.lowest_points(model, clip.qpos)
    assert low.min() == pytest.approx(0.0, abs=0.01)  # soles are 0.05 below the ankles
    low = ground.lowest_points(model, ground.put_on_ground(clip, model).qpos)
    assert low.min() > -1e-9
    assert np.median(low) < 0.01


@pytest.mark.parametrize("name", ["run", "crawl", "sideflip"])
def test_clips_below_the_ground_are_lifted_without_floating(motions, bones, model, name):
    clip = _captured(motions, bones, name)
    assert ground.lowest_points(model, clip.qpos).min() < -0.06
    low = ground.lowest_points(model, ground.put_on_ground(clip, model).qpos)
    assert low.min() > -1e-9
    assert np.quantile(low, 0.2) < 0.025


def test_resampling_preserves_the_motion(bones, model):
    clip = synthetic.stepping(bones)
    finer = clips.resample(clip, 90.0, model)
    assert finer.seconds == pytest.approx(clip.seconds)
    np.testing.assert_allclose(finer.qpos[::3], clip.qpos, atol=1e-9)
    truth = synthetic.stepping(bones, fps=90.0).qpos
    np.testing.assert_allclose(finer.qpos, truth, atol=0.01)
    coarse = clips.resample(clip, 7.0, model)
    assert len(coarse.qpos) == 15 and coarse.fps == 7.0


def test_repeated_cycles_continue_from_the_last_pose(bones, model):
    """A turning, travelling loop continues along its circle."""
    base = synthetic.stepping(bones)
    time = np.linspace(0.0, 1.0, len(base.qpos))
    qpos = base.qpos.copy()
    angle = 0.5 * np.pi * time
    qpos[:, 0], qpos[:, 1] = np.sin(angle), 1.0 - np.cos(angle)
    turn = Rotation.from_rotvec(np.outer(angle, [0, 0, 1]))
    qpos[:, 3:7] = turn.as_quat(scalar_first=True)
    clip = base._replace(qpos=qpos)
    long = clips.repeat_cycles(clip, 4, model)
    assert len(long.qpos) == 4 * (len(qpos) - 1) + 1
    np.testing.assert_allclose(long.qpos[-1, :2], 0.0, atol=1e-9)  # the full circle
    centre = np.hypot(long.qpos[:, 0], long.qpos[:, 1] - 1.0)
    np.testing.assert_allclose(centre, 1.0, atol=1e-9)
    np.testing.assert_allclose(long.qpos[60:121, 7:], qpos[:, 7:], atol=1e-9)


def test_repeated_cycles_of_captured_loops_are_continuous(motions, bones, model):
    clip = _captured(motions, bones)
    long = clips.repeat_cycles(clip, 3, model)
    steps = np.abs(np.diff(long.qpos[:, 7:], axis=0)).max(-1)
    own = np.abs(np.diff(clip.qpos[:, 7:], axis=0)).max()
    assert steps.max() < 1.5 * own
    displacement = long.qpos[-1, 0] - long.qpos[0, 0]
    assert displacement / long.seconds == pytest.approx(0.98, abs=0.02)
    with pytest.raises(UserError, match="does not loop"):
        clips.repeat_cycles(clip._replace(loops=False), 2, model)


def test_hinges_are_clamped_to_limits(bones):
    clip = synthetic.stepping(bones)
    knee = bones.joint("left_knee").qpos
    clip.qpos[3, knee] = 0.3
    assert clips.clamp_to_limits(clip, bones).qpos[3, knee] == 0.0


def test_quaternion_signs_are_made_continuous(bones):
    clip = synthetic.stepping(bones)
    expected = clip.qpos.copy()
    clip.qpos[5:9, 7:11] *= -1.02
    found = clips.validate(clip, bones, "f").qpos
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c._replace(qpos=c.qpos[:1]), r"'f.txt': 1 frame; .* at least 2"),
        (lambda c: c._replace(qpos=c.qpos[:, :-1]), "42 numbers, the model needs 43"),
        (lambda c: c._replace(fps=0.0), "0.0 frames per second"),
    ],
)
def test_bad_clips_are_rejected(bones, change, message):
    with pytest.raises(UserError, match=message):
        clips.validate(change(synthetic.stepping(bones)), bones, "f.txt")


def test_bad_values_are_reported_by_joint_and_frame(bones):
    clip = synthetic.stepping(bones)
    knee = bones.joint("left_knee").qpos

    def changed(columns, value) -> Clip:
        qpos = clip.qpos.copy()
        qpos[4, columns] = value
        return clip._replace(qpos=qpos)

    with pytest.raises(UserError, match="'left_knee' is not finite in frame 4"):
        clips.validate(changed(knee, np.nan), bones, "f")
    with pytest.raises(UserError, match="'root' in frame 4 has the length 0"):
        clips.validate(changed(slice(3, 7), 0.0), bones, "f")
    with pytest.raises(UserError, match="'neck' in frame 4 has the length 2"):
        clips.validate(changed(bones.joint("neck").columns, 1.0), bones, "f")


def test_drifting_quaternion_norms_are_repaired_and_reported(bones):
    clip = synthetic.stepping(bones)
    neck = bones.joint("neck").columns
    away = np.concatenate([np.linspace(1.0, 0.6, 6), np.linspace(0.6, 1.0, 6)])

    def scaled(by) -> Clip:
        qpos = clip.qpos.copy()
        qpos[:12, neck] *= np.broadcast_to(by, 12)[:, None]
        return clip._replace(qpos=qpos)

    repaired = clips.validate(scaled(away), bones, "f")
    np.testing.assert_allclose(repaired.qpos, clip.qpos, atol=1e-12)
    assert repaired.repairs == ("neck: quaternions as far from unit length as 0.60, 6 frames",)
    assert clips.validate(clip, bones, "f").repairs == ()
    for wrong in (0.7, 0.45, np.linspace(0.4, 1.0, 12)):  # jumps back, or too far from 1
        with pytest.raises(UserError, match="'neck' in frame 0 has the length 0"):
            clips.validate(scaled(wrong), bones, "f")
    with pytest.raises(UserError, match="'neck' in frame 0 has the length 0.7"):  # never 1
        qpos = clip.qpos.copy()
        qpos[:, neck] *= 0.7
        clips.validate(clip._replace(qpos=qpos), bones, "f")


def test_long_clips_are_cut_evenly_and_lose_no_step(bones, model):
    clip = synthetic.stepping(bones, seconds=5.0, fps=60.0)._replace(name="walk")
    crops = clips.cut(clip, 2.0, model)
    assert [crop.name for crop in crops] == ["walk[0]", "walk[1]", "walk[2]"]
    assert [len(crop.qpos) for crop in crops] == [51, 51, 51]  # 150 steps at 30 Hz, in three
    assert all(crop.fps == 30.0 and crop.seconds <= 2.0 and not crop.loops for crop in crops)
    whole = clips.resample(clip, 30.0, model).qpos
    joined = np.concatenate([crops[0].qpos, *(crop.qpos[1:] for crop in crops[1:])])
    np.testing.assert_array_equal(joined, whole)
    # 150 steps of at most 40: lengths differ by one step at most.
    assert [len(crop.qpos) for crop in clips.cut(clip, 4 / 3, model)] == [38, 39, 38, 39]


def test_clips_that_are_not_longer_stay_whole(bones, model):
    clip = synthetic.stepping(bones, seconds=2.0, fps=60.0)
    for seconds in (0.0, 2.0, 10.0):
        assert clips.cut(clip, seconds, model)[0] is clip


def test_plan_is_cut_with_its_clip(bones, model):
    clip, rng = synthetic.stepping(bones, seconds=2.0), np.random.default_rng(0)
    plan = clips.Plan(clip.qpos + 0.1, rng.normal(size=(61, 34)), rng.normal(size=(61, 28)), 3)
    for i, crop in enumerate(clips.cut(clip._replace(plan=plan), 1.0, model)):
        rows = slice(30 * i, 30 * i + 31)
        np.testing.assert_array_equal(crop.qpos, clip.qpos[rows])
        for name in ("qpos", "qvel", "feedforward"):
            np.testing.assert_array_equal(getattr(crop.plan, name), getattr(plan, name)[rows])
        assert crop.plan.substeps == 3
