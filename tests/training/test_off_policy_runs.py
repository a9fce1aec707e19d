"""Off-policy runs: exact resume, checkpoints without replay, and refused settings."""

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
from tests.helpers.stepping import trace_iteration

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

FLAGS = shlex.split(
    "rrd-quick --devices 1 --num-envs 4 --epochs 2 --cycles 2 --iterations 12 --eval.num-envs 2 "
    "--network.hidden 8 --network.critic-hidden 8 --offpolicy.train-batches 2 "
    "--offpolicy.batch-size 8 "
    "--rrd.batch-size 8 --rrd.sample-size 4 --task.episode-length 10 "
    "--offpolicy.buffer-size 160 --offpolicy.warmup 20 "
    "--rrd.features quadratic --rrd.bias-correction"
)


def run(folder, *extra):
    """Train on two devices: each has its part of the replay buffer."""
    assert train.main([*FLAGS, "--devices", "2", "--run-dir", str(folder), *extra]) == 0
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
    assert last["train/R_loss"] > 0 and 0 < last["train/n_updates"] < 96  # no updates during warmup
    # The replay buffer was full before the end: overwriting is part of the test.
    assert last["time/iterations"] * 4 > 160 > last["replay/steps"] > 20
    assert last["rollout/episodes"] > 10 and np.isfinite(last["train/q_loss"])


def test_checkpoint_without_replay_can_be_resumed(whole, tmp_path, capsys):
    folder = run(tmp_path / "run", "--epochs", "1", "--checkpoint.no-replay")
    assert "of replay" not in capsys.readouterr().out
    # Compare leaves, not file sizes: with such small arrays sizes vary by chance.
    without_replay, with_replay = (
        {leaf["path"] for leaf in _manifest(place)["leaves"]} for place in (folder, whole)
    )
    replay = {path for path in with_replay if path.startswith("collector/replay")}
    assert replay and without_replay == with_replay - replay
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    rows = tiny.rows(folder)
    assert rows[-1]["time/iterations"] == 48
    assert rows[1]["replay/steps"] > rows[2]["replay/steps"]  # the buffer refills
    # The start of running episodes is lost: a resume must not count them as complete.
    program = programs.build(folders.read_config(folder))
    with CheckpointManager(folder / "checkpoints") as checkpoints:
        state = resume.restore(program, checkpoints).state
    stored = state.collector.replay
    assert (np.asarray(stored.index.current_age) == 40).all() and not stored.ring.written.any()
    # Every iteration with updates also solves for the linear part of the reward model.
    fit = state.learner.params["reward"]["fit"]
    assert float(fit.count) * 2 == rows[-1]["train/n_updates"] > 0 and fit.weights.any()


def test_saved_policy_loads_and_evaluates(whole, capsys):
    policy = jaxrl.load_policy(whole)
    assert np.abs(policy(np.zeros(3, np.float32))).max() <= 1
    assert evaluate.main([str(whole), "--episodes", "3"]) == 0
    assert "mean_reward" in capsys.readouterr().out


def test_td3_can_learn_from_ircr_rewards():
    flags = [*FLAGS, "--algo", "td3", "--offpolicy.reward", "ircr"]
    trace_iteration(programs.build(train._parse(flags).config))


def test_dry_run_reports_replay_memory(capsys):
    assert train.main([*FLAGS, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "160 (4 rows × 40 steps × 33 bytes)" in out
    # offpolicy.batch_size + (rrd.batch_size // rrd.sample_size) × rrd.sample_size steps.
    assert "528 bytes × 2" in out
    # train_batches × rrd.batch_size steps, in whole episodes of 10 or less.
    assert "16 steps × 33 bytes" in out


@pytest.mark.parametrize(
    "flags, complaint",
    [
        ("--algo dqn", "use ppo, reppo, sac or td3"),
        ("--offpolicy.buffer-size 3", "less than one rollout of --num-envs 4: use at least 4"),
        ("--offpolicy.warmup 200", "more than --offpolicy.buffer-size 160"),
        ("--rrd.sample-size 16", "--rrd.batch-size 8 is less than"),
        ("--offpolicy.buffer-size 80", "room for 20 steps of each environment"),
        ("--offpolicy.warmup 100", "may never be reached"),
        # Three environments store 53 steps each, 159 in total.
        (
            "--offpolicy.reward env --num-envs 3 --offpolicy.warmup 160",
            "Use --offpolicy.warmup 159 or less, or --offpolicy.buffer-size 162 or more",
        ),
        ("--network.distribution greedy", "greedy is chosen by algorithms that need it"),
        ("--algo dqn --offpolicy.critic c51", "c51 is for sac and td3"),
        ("--offpolicy.batch-size 0", "--offpolicy.batch-size must be at least 1"),
        ("--network.rnn lstm", "learns from single steps"),
        (
            "--devices 2 --offpolicy.batch-size 7",
            "--offpolicy.batch-size 7 must both be divisible by 2 devices",
        ),
    ],
)
def test_unsupported_settings_are_refused(flags, complaint, capsys):
    assert train.main([*FLAGS, *shlex.split(flags)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags, number",
    [
        ("--offpolicy.warmup 1 --offpolicy.rollout-length 3 --offpolicy.buffer-size 80", 96),
        ("--offpolicy.warmup 90", 172),
        ("--offpolicy.reward env --num-envs 3 --offpolicy.warmup 160", 162),
    ],
)
def test_buffer_size_suggested_by_an_error_is_accepted(flags, number, capsys):
    """Sizes are rounded down to whole rollouts per environment: other ones would fail again."""
    flags = [*FLAGS, "--dry-run", *shlex.split(flags)]
    assert train.main(flags) == 2
    assert f"{number} or more" in capsys.readouterr().err
    assert train.main([*flags, "--offpolicy.buffer-size", str(number)]) == 0
