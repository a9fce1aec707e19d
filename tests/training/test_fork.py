"""Chosen checkpoints: resumed in a new folder, started from, evaluated, and kept or removed."""

import shlex
import shutil

import numpy as np
import pytest

from jaxrl import evaluate, export, train
from jaxrl.policies import load
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")
STEPS = [256, 512, 768]  # two cycles of two rollouts of 8 × 8 steps each


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three epochs, all of whose checkpoints are kept."""
    folder = tmp_path_factory.mktemp("fork") / "run"
    return tiny.run(folder, "--epochs", "3", "--checkpoint.keep", "all")


def steps(folder, place="checkpoints"):
    return sorted(int(p.stem) for p in (folder / place).iterdir() if p.stem.isdecimal())


def test_all_checkpoints_and_their_policies_are_kept(run):
    assert steps(run) == steps(run, "policies") == STEPS
    assert {p.stem for p in (run / "policies").iterdir()} >= {"best", "final"}


def test_resume_from_a_chosen_checkpoint_equals_the_whole_run(run, tmp_path):
    before = sorted(p for p in run.rglob("*") if p.is_file())
    flags = ["--resume", str(run / "checkpoints" / "256"), "--run-dir", str(tmp_path / "new")]
    assert train.main(flags) == 0
    assert tiny.rows(tmp_path / "new") == tiny.rows(run)
    tiny.assert_same_policy(tmp_path / "new", run)
    assert sorted(p for p in run.rglob("*") if p.is_file()) == before


def test_resume_from_the_newest_checkpoint_goes_on_in_its_folder(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    assert train.main(["--resume", str(copy / "checkpoints" / "768"), "--epochs", "4"]) == 0
    assert steps(copy) == [*STEPS, 1024]


def test_reset_steps_starts_from_a_chosen_checkpoint(run, tmp_path, capsys):
    flags = ["--resume", str(run / "checkpoints" / "512"), "--reset-steps", "--epochs", "1"]
    assert train.main([*flags, "--run-dir", str(tmp_path / "new")]) == 0
    assert "at step 512, counted from 0" in " ".join(capsys.readouterr().out.split())


def test_missing_checkpoint_is_an_error_that_names_the_others(run, capsys):
    assert train.main(["--resume", str(run / "checkpoints" / "300")]) == 2
    assert "no checkpoint of step 300: there are 256, 512, 768" in capsys.readouterr().err
    assert evaluate.main([str(run), "--policy", "300"]) == 2
    assert "It has 256, 512, 768, best, final" in " ".join(capsys.readouterr().err.split())


def test_policy_of_a_chosen_checkpoint_is_loaded(run, tmp_path, capsys):
    assert evaluate.main([str(run), "--policy", "512", "--episodes", "2"]) == 0
    assert (run / "evaluation-512.json").exists()
    assert export.main([str(run), "--policy", "256", "--out", str(tmp_path / "out")]) == 0
    early, late = (load.find(run / "checkpoints" / str(step)) for step in (256, 768))
    assert early == run / "policies" / "256.npz"
    kernel = "actor/params/head/kernel"
    arrays = [np.load(file)[kernel] for file in (early, late, run / "policies" / "final.npz")]
    assert not np.array_equal(arrays[0], arrays[1])
    np.testing.assert_array_equal(arrays[1], arrays[2])


def test_init_from_a_chosen_checkpoint(run, tmp_path, capsys):
    flags = ["--init-from", str(run / "checkpoints" / "256"), "--epochs", "1", "--cycles", "1"]
    tiny.run(tmp_path / "new", *flags, "--ppo.learning-rate", "0")
    assert "initialised all networks from" in " ".join(capsys.readouterr().out.split())
    ours, theirs = tiny.policy(tmp_path / "new"), tiny.policy(run, "256")
    kernel = "actor/params/head/kernel"
    np.testing.assert_array_equal(ours[kernel], theirs[kernel])


def test_old_checkpoints_are_removed_with_their_policies(tmp_path):
    folder = tiny.run(tmp_path / "run", "--epochs", "4", "--checkpoint.keep", "1")
    left = steps(folder)
    assert 1024 in left and len(left) <= 2  # the newest, and the best
    assert set(left) <= set(steps(folder, "policies")) <= {*left, 768}


def test_checkpoints_and_evaluations_by_steps(tmp_path):
    flags = shlex.split("--epochs 1 --cycles 4 --checkpoint.every-steps 200 --checkpoint.keep all")
    folder = tiny.run(tmp_path / "run", *flags, "--eval.every-steps", "300")
    assert steps(folder) == [256, 512]  # cycles of 128 steps that pass 200 and 400
    evaluated = [row["step"] for row in tiny.rows(folder) if "eval/mean_reward" in row]
    assert evaluated == [384, 512]
