"""`--resume auto`: one command that starts a run, continues it, and finds it finished."""

import pytest

from jaxrl import train
from jaxrl.loggers import run_dir
from jaxrl.training import fit
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


def command(folder, *more):
    return tiny.flags(folder, "--resume", "auto", *more)


def test_same_command_starts_continues_and_ends(tmp_path, capsys):
    assert train.main(command(tmp_path / "run", "--epochs", "1")) == 0
    assert train.main(command(tmp_path / "run")) == 0  # 2 epochs
    assert tiny.rows(tmp_path / "run") == tiny.rows(tiny.run(tmp_path / "whole"))
    capsys.readouterr()
    # As if it was killed after its last checkpoint.
    (tmp_path / "run" / "policies" / "final.npz").unlink()
    assert train.main(command(tmp_path / "run")) == 0
    assert "has reached its end" in capsys.readouterr().out
    tiny.assert_same_policy(tmp_path / "run", tmp_path / "whole")


def test_other_settings_than_those_of_the_run_are_refused(tmp_path, capsys):
    assert train.main(command(tmp_path / "run", "--epochs", "1")) == 0
    assert train.main(command(tmp_path / "run", "--ppo.lam", "0.5")) == 2
    assert "has other settings: ppo.lam is 0.5 (was 0.95)" in capsys.readouterr().err
    assert train.main(command(tmp_path / "run", "--num-seeds", "2")) == 2
    assert "has 1 members, and this command 2" in capsys.readouterr().err


def test_folder_must_be_named(capsys):
    assert train.main([*tiny.FLAGS, "--resume=auto"]) == 2
    assert "--resume auto needs --run-dir" in capsys.readouterr().err


def test_folder_without_a_run_holds_nothing(tmp_path):
    config = train._parse(tiny.flags(tmp_path)).config
    assert fit.resume_if_present([config]) is None


def test_what_may_change_on_a_resume_is_taken_from_the_command(tmp_path):
    assert train.main(command(tmp_path / "run", "--epochs", "1")) == 0
    assert train.main(command(tmp_path / "run", "--checkpoint.keep", "7")) == 0
    assert run_dir.read_config(tmp_path / "run").checkpoint.keep == 7


def test_dry_run_and_help_train_nothing(tmp_path, capsys):
    assert train.main(command(tmp_path / "run", "--epochs", "1")) == 0
    before = tiny.rows(tmp_path / "run")
    assert train.main(command(tmp_path / "run", "--dry-run")) == 0
    assert train.main(command(tmp_path / "run", "--help")) == 0
    assert "--resume" in capsys.readouterr().out
    assert tiny.rows(tmp_path / "run") == before
