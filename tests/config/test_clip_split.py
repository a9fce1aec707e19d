"""The split of DeepMimic's clips: what is never trained on, and who is held to it."""

from dataclasses import replace
from pathlib import Path

import pytest

from jaxrl import evaluate, train
from jaxrl.config import clip_split, presets
from jaxrl.config.validate import validate
from jaxrl.envs.tasks import tracking
from jaxrl.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
NEVER_TRAINED = {
    "sie_humanoid3d_run_forward": ("02", "03", "08", "09", "14", "15"),
    "sie_humanoid3d_run_left": ("02", "06", "10", "13"),
    "sie_humanoid3d_run_right": ("02", "05", "09", "13"),
    "sie_humanoid3d_punch_forward": ("02",),
    "humanoid3d_long_walk3": ("", "_mirror"),
    "humanoid3d_stealthy_walk": ("1",),
    "humanoid3d_": ("jog", "zombie_walk", "kick", "getup_faceup"),
}


def test_the_test_clips_are_those_that_are_never_trained_on():
    expected = {f"{stem}{end}" for stem, ends in NEVER_TRAINED.items() for end in ends}
    split = clip_split.read()
    assert set(split.test) == expected and len(split.test) == 22
    assert not set(split.train) & set(split.test)
    assert len(set(split.train)) == len(split.train) == 61


def test_twins_are_on_one_side():
    split = clip_split.read()
    twins = [name for pair in split.twins for name in pair]
    assert len(set(twins)) == len(twins) == 2 * (8 + 15 + 4)
    for one, other in split.twins:
        assert {one, other} <= {*split.train, *split.test}
        assert clip_split.is_test(one) == clip_split.is_test(other)


def test_experiments_name_the_same_split():
    named = ROOT / "experiments" / "imitation" / "split.json"
    assert named.samefile(ROOT / "jaxrl" / "config" / "clip_split.json")


@pytest.fixture
def folder(tmp_path):
    for name in ("humanoid3d_kick.txt", "humanoid3d_walk.txt", "humanoid3d_jog.npz", "notes.md"):
        (tmp_path / name).touch()
    (tmp_path / "humanoid3d_zombie_walk.md").touch()  # no motion file
    return tmp_path


def test_training_refuses_test_clips(folder, capsys):
    assert train.main(["imitate", "--motion.clips", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"'{folder}': humanoid3d_jog, humanoid3d_kick are for testing only" in error
    assert "--motion.split train" in error and "--motion.allow-test-clips" in error
    assert "zombie" not in error and "humanoid3d_walk" not in error


@pytest.mark.parametrize(
    "changes, refused",
    [
        ({}, True),
        ({"split": "test"}, True),
        ({"split": "train"}, False),
        ({"allow_test_clips": True}, False),
        ({"split": "test", "allow_test_clips": True}, False),
    ],
)
@pytest.mark.parametrize("preset", ["imitate", "amp-walk"])
def test_training_on_test_clips_must_be_asked_for(folder, preset, changes, refused):
    config = presets.get(preset)
    motion = replace(config.motion, clips=folder, **changes)
    assert bool(validate(replace(config, motion=motion))) == refused
    one = replace(motion, clips=folder / "humanoid3d_kick.txt")
    assert bool(validate(replace(config, motion=one))) == refused


def test_parts_are_read_by_name(folder):
    files = sorted(file for file in folder.iterdir() if file.suffix != ".md")
    names = {s: [f.stem for f in clip_split.chosen(files, s)] for s in ("all", "train", "test")}
    assert names["train"] == ["humanoid3d_walk"]
    assert names["test"] == ["humanoid3d_jog", "humanoid3d_kick"]
    assert len(names["all"]) == 3


@pytest.mark.parametrize(
    "flags, expected",
    [
        ({}, ("motions", "train")),
        ({"split": "test"}, ("motions", "test")),
        ({"clips": Path("others")}, ("others", "all")),
        ({"clips": Path("others"), "split": "test"}, ("others", "test")),
    ],
)
def test_evaluations_choose_a_part(flags, expected):
    config = presets.get("imitate")
    config = replace(config, motion=replace(config.motion, clips=Path("motions"), split="train"))
    motion = evaluate._with_clips(config, evaluate.EvaluateArgs(Path("run"), **flags)).motion
    assert (motion.clips.name, motion.split) == expected


def test_pushes_are_a_condition_of_their_own():
    """Clips are first played without them, whatever the run's evaluations did."""
    config = presets.get("imitate-recover")
    config = replace(config, motion=replace(config.motion, push_trials=True))
    args = evaluate.EvaluateArgs(Path("run"), push=0.7)
    config = evaluate._with_pushes(evaluate._with_clips(config, args), args)
    plain, pushed = tracking.conditions(config)
    assert (plain.label, plain.config.motion.push_trials) == ("", False)
    assert pushed[:2] == ("pushed", "pushed by 0.7 m/s every 2 s")
    assert pushed.config.motion.push_trials and pushed.config.motion.push == 0.7
    never = evaluate.EvaluateArgs(Path("run"), push=0.0)
    assert len(tracking.conditions(evaluate._with_pushes(config, never))) == 1


def test_split_needs_motion_clips():
    args = evaluate.EvaluateArgs(Path("run"), split="test")
    with pytest.raises(UserError, match="--split: the environment 'ant' follows no motion clips"):
        evaluate._with_clips(presets.get("ant"), args)
