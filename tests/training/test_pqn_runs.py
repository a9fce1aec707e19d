"""Runs of PQN: exact resume on two devices, its policies, refused settings, and learning."""

import importlib.util
import json

import numpy as np
import pytest

import jaxrl
from jaxrl import callbacks, export, train
from jaxrl.config import presets
from jaxrl.utils import xla_options
from tests.helpers import stepping, tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


def run(folder, *extra):
    assert train.main([*tiny.PQN, "--eval.num-envs", "4", "--run-dir", str(folder), *extra]) == 0
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "whole", "--devices", "2")


def test_resume_equals_one_long_run(whole, tmp_path):
    parts = run(tmp_path / "parts", "--devices", "2", "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(whole)
    tiny.assert_same_policy(parts, whole)
    last = tiny.rows(whole)[-1]
    assert last["train/n_updates"] == 8 * 8 and last["train/n_skipped"] == 0
    assert last["train/q_loss"] > 0


def test_policy_loads_and_exports(whole, tmp_path):
    assert export.main([str(whole), "--out", str(tmp_path / "out")]) == 0
    path = tmp_path / "out" / "policy.py"
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(module.Policy()(obs), jaxrl.load_policy(whole)(obs))


def test_settings_and_the_batch_are_reported(capsys):
    assert train.main([*tiny.PQN, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "8 rows × 8 steps = 64" in out and "16 steps" in out
    config = train._parse(["cartpole", "--algo", "pqn"]).config
    assert config == presets.get("pqn-cartpole") and not config.pqn.normalize_obs


@pytest.mark.parametrize(
    "flags, complaint",
    [
        ("--env pendulum", "whose actions are continuous: use ppo, reppo, sac or td3"),
        ("--network.rnn lstm", "--network.rnn: --algo pqn learns from single steps"),
        ("--pqn.num-minibatches 5", "--pqn.num-minibatches 5 cannot split the 64 steps"),
        ("--devices 3", "--num-envs 8 does not divide over 3 devices: use 6 or 9"),
        ("--data.path x", "--data.path"),
        ("--offpolicy.gamma 0.9", "--offpolicy.gamma"),
    ],
)
def test_unsupported_settings_are_refused(flags, complaint, capsys):
    assert train.main([*tiny.PQN, *flags.split()]) == 2
    assert complaint in capsys.readouterr().err


def test_members_of_a_population_differ_by_what_is_varied(tmp_path):
    run(tmp_path / "many", "--vary", "pqn.learning-rate=0,1e-2")
    first = [
        json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
        for folder in sorted((tmp_path / "many").glob("*/"))
        if (folder / "metrics.jsonl").exists()
    ]
    assert [row["train/learning_rate"] for row in first] == pytest.approx([0, 1e-2])


@pytest.mark.learning
def test_pqn_balances_the_pole(tmp_path, monkeypatch):
    monkeypatch.setattr(xla_options, "options", lambda *_, **__: stepping.OPTIMIZED)
    stop = callbacks.StopOnReward(450)  # random actions stay below 30
    result = jaxrl.fit("pqn-cartpole", callbacks=[stop], devices=1, run_dir=tmp_path / "run")
    assert result.last_evaluation["eval/mean_reward"] >= 450
