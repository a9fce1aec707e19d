"""Invalid motion and AMP settings are reported with the fix."""

from dataclasses import replace

import pytest

from jaxrl.config import presets
from jaxrl.config.validate import validate


def problems(section, env="imitation", **changes):
    config = presets.get("imitate-walk")
    config = replace(config, env=env, **{section: replace(getattr(config, section), **changes)})
    return validate(config)


def test_motion_presets_are_valid():
    for name in ("imitate-walk", "imitate", "amp-walk"):
        assert validate(presets.get(f"{name}-tiny")) == []
        assert validate(presets.get(name)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"substeps": 0}, "--motion.substeps must be at least 1, not 0."),
        ({"future": ()}, "--motion.future needs one or more values, not ()."),
        ({"speeds": (2.0, 1.0)}, "--motion.speeds must be two numbers, the lower one first."),
        ({"hybrid_fraction": 1.5}, "--motion.hybrid-fraction must lie between 0 and 1"),
        ({"weights": (0.5, -0.1, 0.1, 0.1)}, "--motion.weights must be at least 0, not (0.5, -0.1"),
    ],
)
def test_numbers_out_of_range(changes, message):
    (problem,) = problems("motion", **changes)
    assert problem.startswith(message)


def test_missing_clips_are_reported(tmp_path):
    (problem,) = problems("motion", clips=tmp_path / "walk.txt")
    assert "--motion.clips" in problem and "no such file" in problem


def test_other_environments_need_no_clips(tmp_path):
    assert problems("motion", env="cartpole", clips=tmp_path / "walk.txt") == []


def test_amp_settings_out_of_range():
    assert problems("amp", weight=-1.0) == ["--amp.weight must be at least 0, not -1.0."]
    assert problems("amp", hidden=()) == ["--amp.hidden needs one or more values, not ()."]


@pytest.mark.parametrize("preset", ["sac-ant", "dqn-cartpole"])
def test_amp_needs_ppo(preset):
    config = presets.get(preset)
    (problem,) = validate(replace(config, amp=replace(config.amp, weight=1.0)))
    assert problem == f"--amp.weight is for --algo ppo, not {config.algo}."
