"""Settings of motion and style that cannot be are named, with the fix."""

from dataclasses import replace

import pytest

from jaxrl.config import presets
from jaxrl.config.validate import validate


def problems(section, env="imitation", **changes):
    config = presets.get("imitate-walk")
    config = replace(config, env=env, **{section: replace(getattr(config, section), **changes)})
    return validate(config)


def test_the_presets_are_fine():
    for name in ("imitate-walk", "imitate", "amp-walk"):
        assert validate(presets.get(f"{name}-tiny")) == []
        assert validate(presets.get(name)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"substeps": 0}, "--motion.substeps must be at least 1."),
        ({"future": ()}, "--motion.future needs one or more frames"),
        ({"speeds": (2.0, 1.0)}, "--motion.speeds must be two numbers, the lower one first."),
        ({"hybrid_share": 1.5}, "--motion.hybrid-share must lie between 0 and 1."),
        ({"weights": (0.5, -0.1, 0.1, 0.1)}, "--motion.weights must not be negative."),
    ],
)
def test_numbers_out_of_range(changes, said):
    (problem,) = problems("motion", **changes)
    assert problem.startswith(said)


def test_clips_that_are_not_there(tmp_path):
    (problem,) = problems("motion", clips=tmp_path / "walk.txt")
    assert "--motion.clips" in problem and "no such file" in problem


def test_other_environments_need_no_clips(tmp_path):
    assert problems("motion", env="cartpole", clips=tmp_path / "walk.txt") == []


def test_style_in_range():
    assert problems("amp", weight=-1.0) == ["--amp.weight must not be negative."]
    assert problems("amp", hidden=())[0].startswith("--amp.hidden needs one or more widths")


@pytest.mark.parametrize("preset", ["sac-ant", "dqn-cartpole"])
def test_style_is_learnt_by_ppo_alone(preset):
    config = presets.get(preset)
    (problem,) = validate(replace(config, amp=replace(config.amp, weight=1.0)))
    assert problem == f"--amp.weight is for --algo ppo, not {config.algo}."
