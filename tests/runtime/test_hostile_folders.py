"""Run folders of unknown origin: they import nothing and write nothing outside themselves."""

import dataclasses
import sys

import pytest

from jaxrl import config_json, evaluate, presets, render, train
from jaxrl.data import record
from jaxrl.errors import UserError
from jaxrl.runtime import folder as folders
from jaxrl.runtime import summary

HOSTILE = "hostile_module:function"


def with_code(config, env, randomize):
    return dataclasses.replace(
        config, env=env, task=dataclasses.replace(config.task, randomize=randomize)
    )


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A run folder whose settings name a module that must not be imported."""
    (tmp_path / "hostile_module.py").write_text("def function(sys, key):\n    return sys\n")
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    (run / "policies").mkdir(parents=True)
    (run / "policies" / "best.npz").write_bytes(b"")
    config = with_code(presets.get("cartpole"), "inverted_pendulum", HOSTILE)
    (run / "config.json").write_text(config_json.to_json(config))
    yield run
    assert "hostile_module" not in sys.modules


@pytest.mark.parametrize(
    "command",
    [
        lambda run: evaluate.main([run]),
        lambda run: render.main([run]),
        lambda run: record.main([run, "--out", "x.hdf5"]),
        lambda run: train.main(["--resume", run]),
        lambda run: train.main(["--resume", run, "--reset-steps"]),
    ],
    ids=["evaluate", "render", "record", "resume", "reset-steps"],
)
def test_code_that_a_file_names_is_not_imported(hostile, capsys, command):
    assert command(str(hostile)) == 2
    assert f"To allow its import, add --task.randomize {HOSTILE}" in capsys.readouterr().err


def test_code_is_allowed_by_naming_it_again(hostile):
    config = folders.read_config(hostile, randomize=HOSTILE)
    assert config.task.randomize == HOSTILE
    with pytest.raises(UserError, match="--task.randomize other:f: the run in .* has"):
        (hostile / "config.json").write_text(config_json.to_json(presets.get("cartpole")))
        folders.read_config(hostile, randomize="other:f")


def test_each_member_of_a_population_is_checked(hostile):
    (hostile / "members.json").write_text('["seed-0"]')
    (hostile / "seed-0").mkdir()
    (hostile / "config.json").rename(hostile / "seed-0" / "config.json")
    with pytest.raises(UserError, match="To allow its import"):
        folders.read_members(hostile)


def test_resume_command_names_all_code():
    config = with_code(presets.get("cartpole"), "gym:a:b; reboot", "c:d")
    text = summary.again("run", config)
    assert text.endswith("--resume run --env 'gym:a:b; reboot' --task.randomize c:d")
    config = with_code(config, "cartpole", None)
    assert summary.again("run", config).endswith("--resume run")
