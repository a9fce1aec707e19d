"""Runs of off-policy learning: resumed exactly, with and without replay, on several devices."""

import json
import shlex

import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, programs, train
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.loggers import run_dir as folders
from jaxrl.training import resume
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs")

FLAGS = shlex.split(
    "rrd-quick --devices 1 --num-envs 4 --epochs 2 --cycles 2 --iterations 12 --eval.num-envs 2 "
    "--network.hidden 8 --network.critic-hidden 8 --train-batches 2 --batch-size 8 "
    "--rrd.batch-size 8 --rrd.sample-size 4 --task.episode-length 10 "
    "--offpolicy.buffer-size 160 --offpolicy.warmup 20 "
    "--rrd.features quadratic --rrd.bias-correction"
)


def run(folder, *extra):
    assert train.main([*FLAGS, "--run-dir", str(folder), *extra]) == 0
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "whole")


def _manifest(folder):
    return json.loads((folder / "checkpoints" / "96" / "manifest.json").read_text())["body"]


def test_resume_equals_one_long_run(whole, tmp_path):
    parts = run(tmp_path / "parts", "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(whole)
    tiny.assert_same_policy(parts, whole)
    last = tiny.rows(whole)[-1]
    assert last["train/R_loss"] > 0 and 0 < last["train/n_updates"] < 96  # none while it waited
    # The ring was full before the end: what was overwritten is part of the test.
    assert last["time/iterations"] * 4 > 160 > last["replay/steps"] > 20
    assert last["rollout/episodes"] > 10


def test_checkpoints_without_replay_are_small_and_go_on(whole, tmp_path, capsys):
    folder = run(tmp_path / "run", "--epochs", "1", "--checkpoint.no-replay")
    assert "of replay" not in capsys.readouterr().out
    # What is kept, not how many bytes that takes: files of such small arrays differ by chance.
    without, everything = (
        {leaf["path"] for leaf in _manifest(place)["leaves"]} for place in (folder, whole)
    )
    replay = {path for path in everything if path.startswith("collector/replay")}
    assert replay and without == everything - replay
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    rows = tiny.rows(folder)
    assert rows[-1]["time/iterations"] == 48
    assert rows[1]["replay/steps"] > rows[2]["replay/steps"]  # filled anew
    # What the episodes in progress did before is lost: a resume must not count them as whole.
    program = programs.build(folders.read_config(folder))
    with CheckpointManager(folder / "checkpoints") as kept:
        state = resume.restore(program, kept).state
    stored = state.collector.replay
    assert (np.asarray(stored.index.current_age) == 40).all() and not stored.ring.written.any()
    # Whenever there was something to learn from, what is linear in it was solved for.
    fit = state.learner.params["reward"]["fit"]
    assert float(fit.count) * 2 == rows[-1]["train/n_updates"] > 0 and fit.weights.any()


def test_policies_are_loaded_and_judged(whole, capsys):
    policy = jaxrl.load_policy(whole)
    assert np.abs(policy(np.zeros(3, np.float32))).max() <= 1
    assert evaluate.main([str(whole), "--episodes", "3"]) == 0
    assert "mean_reward" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["--devices 2", "--algo td3 --offpolicy.reward ircr"])
def test_variants_run(words, tmp_path):
    folder = run(tmp_path / "run", *shlex.split(words), "--epochs", "1", "--eval.num-envs", "0")
    assert np.isfinite(tiny.rows(folder)[-1]["train/q_loss"])


def test_memory_is_told_beforehand(capsys):
    assert train.main([*FLAGS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "160 (4 rows × 40 steps × 33 bytes)" in out
    # batch_size + (rrd_batch_size // rrd_sample_size) × rrd_sample_size steps.
    assert "528 bytes × 2" in out
    # train_batches × rrd_batch_size steps, in whole episodes of 10 or less.
    assert "16 steps × 33 bytes" in out


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("--algo dqn", "use sac or td3"),
        ("--offpolicy.buffer-size 3", "less than one rollout: use at least 4"),
        ("--offpolicy.warmup 200", "more than --offpolicy.buffer-size 160"),
        ("--rrd.sample-size 16", "--rrd.batch-size 8 is less than"),
        ("--offpolicy.buffer-size 80", "room for 20 steps of each environment"),
        ("--offpolicy.warmup 100", "may never be reached"),
        # Three rows keep 53 steps each, 159 in all.
        (
            "--offpolicy.reward env --num-envs 3 --offpolicy.warmup 160",
            "Use --offpolicy.warmup 159 or less, or --offpolicy.buffer-size 162 or more",
        ),
        ("--network.distribution greedy", "belongs to td3 or dqn"),
        ("--algo dqn --offpolicy.critic c51", "c51 is for sac and td3"),
        ("--batch-size 0", "--batch-size must be at least 1"),
        ("--network.rnn lstm", "learns from single steps"),
        ("--devices 2 --batch-size 7", "--batch-size 7 must both divide over 2 devices"),
    ],
)
def test_what_cannot_be_run_is_named(words, complaint, capsys):
    assert train.main([*FLAGS, *shlex.split(words)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, number",
    [
        ("--offpolicy.warmup 1 --offpolicy.rollout-length 3 --offpolicy.buffer-size 80", 96),
        ("--offpolicy.warmup 90", 172),
        ("--offpolicy.reward env --num-envs 3 --offpolicy.warmup 160", 162),
    ],
)
def test_the_buffer_size_an_error_asks_for_is_enough(words, number, capsys):
    """It is cut to whole rollouts of every row: a number between two of them would fail again."""
    words = [*FLAGS, "--dry-run", *shlex.split(words)]
    assert train.main(words) == 2
    assert f"{number} or more" in capsys.readouterr().err
    assert train.main([*words, "--offpolicy.buffer-size", str(number)]) == 0
