"""Any value of a numeric setting is accepted or raises a UserError that names its flag."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl import train
from jaxrl.config import TrainConfig, overrides, presets, validate
from jaxrl.config import settings as declared
from jaxrl.config.values import format_value
from jaxrl.errors import UserError

BASES = [
    TrainConfig(),
    *map(presets.get, ("reppo-ant", "sac-ant", "imitate", "pick-place")),
]
HUGE = 10**5000  # Python refuses to convert it to text


def is_numeric(value):
    """Tell whether a default is a number or a tuple of numbers."""
    each = value if isinstance(value, tuple) else (value,)
    return all(type(v) in (int, float) for v in each) and bool(each)


FLAT = declared.values(TrainConfig())
OPTIONAL = ["total_steps", "devices", "task.episode_length", "task.reset_pool", "ppo.bptt_horizon"]
NUMERIC = [path for path, value in FLAT.items() if is_numeric(value)] + OPTIONAL
ODD = st.one_of(
    st.sampled_from([0, -1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**70), HUGE, -HUGE]),
    st.sampled_from([0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e39, 1e-300, 1e308]),
    st.sampled_from(["8", None, True, b"", [1], (), (1, "x"), {}, object(), 1 + 2j]),
    st.integers(),
    st.floats(),
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(BASES), st.sampled_from(NUMERIC), ODD, st.booleans())
def test_any_numeric_value_is_accepted_or_its_flag_named(base, path, value, listed):
    value = (value,) * len(FLAT[path]) if listed and isinstance(FLAT[path], tuple) else value
    try:
        validate.check(overrides.changed(base, {path: value}))
    except UserError as error:
        # Limits of several settings together may name the others.
        named = [declared.flag(path), "--epochs", "--offpolicy.train-batches", "--num-envs"]
        assert any(flag in str(error) for flag in named)
        assert len(str(error)) < 2000


def test_every_section_is_checked():
    assert {path.partition(".")[0] for path in NUMERIC if "." in path} == {
        *("task", "motion", "pick", "network", "ppo", "reppo", "pqn", "amp", "offpolicy"),
        *("rrd", "data", "eval", "checkpoint", "log"),
    }


@pytest.mark.parametrize("value", [HUGE, float("nan"), float("inf"), "8", True], ids=format_value)
def test_invalid_values_are_refused_by_every_numeric_field(value):
    for path in NUMERIC:
        listed = (value,) * len(FLAT[path]) if isinstance(FLAT[path], tuple) else value
        with pytest.raises(UserError, match=f"{re.escape(declared.flag(path))} must be"):
            validate.check(overrides.changed(BASES[0], {path: listed}))


FLAGS = {
    "--epochs 9223372036854775808": "--epochs must be at most 2,147,483,647",
    "--iterations 2147483648": "--iterations must be at most 2,147,483,647",
    "--cycles 99999999999": "--cycles must be at most 2,147,483,647",
    "--epochs 2000000000 --cycles 5": "--epochs × --cycles × --iterations: 100,000,000,000 iter",
    "--total-steps 9223372036854775808": "--total-steps must be at most 9,223,372,036,854,775,807",
    "--total-steps 9223372036854775807": "--total-steps: 562,949,953,421,320 iterations are more",
    "--num-envs 2147483648": "--num-envs must be at most 2,147,483,647",
    "--num-envs 268435456": "--num-envs × --ppo.rollout-length: 4,294,967,296 steps in a rollout",
    "--ppo.rollout-length 99999999999999999999": "--ppo.rollout-length must be at most",
    "--num-seeds 9223372036854775808": "--num-seeds must lie between 1 and 65,536",
    "--num-seeds 60000 --vary ppo.gamma=0.9,0.99": "make 120,000 members; at most 65,536",
    "--seed 4294967295 --num-seeds 2": "--seed must be at most 4,294,967,295, not 4294967296",
    "--ppo.learning-rate inf": "--ppo.learning-rate must be finite, not inf",
    "--ppo.learning-rate 1e39": "--ppo.learning-rate must be at most 3.4e+38, not 1e+39",
    "--network.hidden 64 2147483648": "--network.hidden must be at most 2,147,483,647",
}


@pytest.mark.parametrize("flags", FLAGS)
def test_huge_numbers_name_their_flag_and_leave_no_folder(flags, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train.main(["custom", "--ppo.rollout-length", "16", *flags.split()]) == 2
    assert FLAGS[flags] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_total_steps_beyond_int32_are_accepted():
    config = replace(TrainConfig(), total_steps=2**40)
    validate.check(config)
    assert config.total_iterations * config.steps_per_iteration >= 2**40


def test_total_cycles_are_exact_beyond_float_precision():
    """As a float, 2**62 + 1 is 2**62, which would drop the last cycle."""
    config = replace(TrainConfig(), num_envs=1, iterations=1, total_steps=2**62 + 1)
    assert config.total_cycles == 2**58 + 1


def test_settings_of_the_wrong_type_are_named():
    for changes, text in {
        "num_envs": "--num-envs must be an integer, not '8'",
        "task": "'task' is a group of settings: name one of them, as 'task.name'.",
        "algo": "--algo: unknown algorithm '8'. Known: ppo, reppo, pqn, sac, td3, dqn, iql, bc, or",
        "profile": "--profile must be True or False, not '8'",
        "network.hidden": "--network.hidden must be a tuple, not '8'",
        "motion.weights": "--motion.weights must be a tuple of 4, not '8'",
    }.items():
        with pytest.raises(UserError, match=re.escape(text)):
            validate.check(overrides.changed(TrainConfig(), {changes: "8"}))
    with pytest.raises(UserError, match="must be a TrainConfig"):
        validate.check(None)  # type: ignore[arg-type]
