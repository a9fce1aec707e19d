"""Untrusted run folders: reading one imports no code and writes nothing outside it."""

import dataclasses
import json
import math
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from jaxrl import evaluate, export, record, render, report, train
from jaxrl.config import presets, serialization
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers.eval_log import EvalLog
from jaxrl.training import summary
from tests.helpers import tiny

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
    (run / "config.json").write_text(serialization.to_json(config))
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
def test_code_named_in_a_config_is_not_imported(hostile, capsys, command):
    assert command(str(hostile)) == 2
    assert f"To allow its import, add --task.randomize {HOSTILE}" in capsys.readouterr().err


def test_naming_the_code_again_allows_its_import(hostile):
    config = folders.read_config(hostile, randomize=HOSTILE)
    assert config.task.randomize == HOSTILE
    with pytest.raises(UserError, match="--task.randomize other:f: the run in .* has"):
        (hostile / "config.json").write_text(serialization.to_json(presets.get("cartpole")))
        folders.read_config(hostile, randomize="other:f")


def test_each_member_of_a_population_is_checked(hostile):
    (hostile / "members.json").write_text('["seed-0"]')
    (hostile / "seed-0").mkdir()
    (hostile / "config.json").rename(hostile / "seed-0" / "config.json")
    with pytest.raises(UserError, match="To allow its import"):
        folders.read_members(hostile)


def test_resume_command_names_all_code():
    config = with_code(presets.get("cartpole"), "gym:a:b; reboot", "c:d")
    text = summary.resume_command("run", config)
    assert text.endswith("--resume run --env 'gym:a:b; reboot' --task.randomize c:d")
    config = with_code(config, "cartpole", None)
    assert summary.resume_command("run", config).endswith("--resume run")


@pytest.fixture
def linked(tmp_path):
    """A run folder with a symbolic link to a file outside, which must not change."""
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    run.mkdir()
    (run / "config.json").write_text(serialization.to_json(presets.get("cartpole")))
    (run / ".lock").symlink_to(victim)
    yield run
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "command",
    [
        lambda run: evaluate.main([run]),
        lambda run: render.main([run]),
        lambda run: report.main([run]),
        lambda run: export.main([run]),
        lambda run: train.main(["--resume", run]),
        lambda run: train.main(tiny.flags("new", "--init-from", run)),
    ],
    ids=["evaluate", "render", "report", "export", "resume", "init-from"],
)
def test_links_out_of_the_run_folder_are_refused(linked, capsys, monkeypatch, command):
    monkeypatch.chdir(linked.parent)
    for part in ("policies", "checkpoints"):
        (linked / part).mkdir()
    (linked / "policies" / "best.npz").write_bytes(b"")
    assert command(str(linked)) == 2
    assert "/run/.lock' is a symbolic link that leads out of its run folder" in (
        capsys.readouterr().err
    )
    assert not (linked.parent / "new").exists()


def test_lock_does_not_follow_links(linked):
    with pytest.raises(UserError, match="symbolic link"), folders.locked(linked):
        pass


def test_lock_removes_temporary_files_and_keeps_its_content(tmp_path):
    (tmp_path / ".jaxrl-0.tmp").touch()
    os.utime(tmp_path / ".jaxrl-0.tmp", (0, 0))
    (tmp_path / ".lock").write_text("of another version")
    with folders.locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert (tmp_path / ".lock").read_text() == "of another version"


def evaluation(episodes=2):
    numbers = np.zeros(episodes, np.float32)
    return Episodes(numbers, numbers.astype(np.int32), numbers)


def test_invalid_evaluations_file_is_replaced(tmp_path):
    path = tmp_path / "evaluations.npz"
    whole = {"timesteps": np.array([5]), "results": np.zeros((1, 2)), "ep_lengths": np.ones((1, 2))}
    changes = [
        {"timesteps": np.array(["x"])},
        {"timesteps": np.array([np.inf])},
        {"timesteps": np.array(5), "results": np.zeros(()), "ep_lengths": np.zeros(())},
        {"timesteps": np.array([5, 6])},
        {"results": np.array([["a", "b"]])},
        {"ep_lengths": np.zeros((1, 3))},
        {"successes": np.zeros(7)},
    ]
    for change in changes:
        np.savez(path, **whole | change)
        record = EvalLog(path, resumed_at=10)
        record.add(20, evaluation())
        with np.load(path) as data:
            assert data["timesteps"].tolist() == [20], change


def test_evaluations_without_successes_are_moved_aside(tmp_path):
    path = tmp_path / "evaluations.npz"
    EvalLog(path, None).add(5, evaluation()._replace(successes=None))
    EvalLog(path, 10).add(20, evaluation())
    assert (tmp_path / "evaluations-until-5.npz").exists()
    with np.load(path) as data:
        assert data["timesteps"].tolist() == [20]


SETTINGS = json.loads(serialization.to_json(presets.get("cartpole")))
WRONG = [None, True, -1, 0, 2**31, 2**63, 10**400, 1.5, math.nan, math.inf, "x", "", [], {}, [1]]
WRONG += [["x"], [2**63], {"x": 1}, [[]], "a\0b", "\ud800", "\x1b[2J"]


def settings_with(value):
    """Yield the settings with each field or section in turn replaced by a value."""
    for name, part in SETTINGS.items():
        yield name, SETTINGS | {name: value}
        if isinstance(part, dict):
            for inner in part:
                yield f"{name}.{inner}", SETTINGS | {name: part | {inner: value}}


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrongly_typed_settings_raise_a_user_error(tmp_path, number):
    """Settings that load have passed validation; all others raise a UserError."""
    some = list(settings_with(WRONG[number]))[number % 6 :: 6]
    for name, settings in some:
        (tmp_path / "config.json").write_text(json.dumps(settings))
        try:
            config = folders.read_config(tmp_path)
        except UserError as error:
            assert "config.json" in str(error) or "To allow its import" in str(error)
            assert str(error).isascii() and "\x1b" not in str(error), name
        else:
            serialization.to_json(config).encode()
            assert config.total_iterations > 0 and config.steps_per_iteration > 0


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"format": 1, "seed": 1' + "0" * 5000 + "}", "not valid JSON"),
        ("null", "was not written by this version"),
        ('{"format": true}', "was not written by this version"),
        ('{"format": 2}', "was not written by this version"),
        ('{"format": 1, "extra": 1}', "unknown field 'extra'"),
        ('{"format": 1, "task": {"extra": 1}}', "unknown field 'task.extra'"),
        ('{"format": 1, "seed": 9223372036854775808}', "field 'seed' has the unusable value"),
        ('{"format": 1, "ppo": {"gamma": NaN}}', "--ppo.gamma must be finite, not nan"),
        ('{"format": 1, "iterations": 0}', "--iterations must be at least 1"),
    ],
)
def test_unreadable_settings_are_reported(tmp_path, capsys, text, message):
    (tmp_path / "config.json").write_text(text)
    for command in (evaluate.main, render.main, report.main):
        assert command([str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert "config.json" in err and message in err and "Traceback" not in err


def test_provenance_lists_changed_files(monkeypatch):
    answers = {"rev-parse": "abc\n", "status": " M x\n?? y\n"}

    def git(command, **_):
        return SimpleNamespace(stdout=answers[command[3]])

    monkeypatch.setattr(folders.subprocess, "run", git)
    assert folders._git_state() == {"commit": "abc", "changed": [" M x", "?? y"]}
    answers["status"] = ""
    assert folders._git_state()["changed"] == []
