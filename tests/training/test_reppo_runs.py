"""Runs of REPPO: exact resume on two devices, its policies, and refused settings."""

import importlib.util

import numpy as np
import pytest

import jaxrl
from jaxrl import callbacks, evaluate, export, programs, train
from jaxrl.config import presets
from jaxrl.utils import xla_options
from tests.helpers import stepping, tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

OWN = "jaxrl.envs.tasks.classic:Pendulum"


def run(folder, *extra):
    assert train.main([*tiny.REPPO, "--eval.num-envs", "4", "--run-dir", str(folder), *extra]) == 0
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
    assert last["train/q_loss"] > 0 and last["train/approx_kl"] > 0


def test_minibatches_are_split_over_devices_without_moving_steps():
    """Rows of a device stay there: gradients are summed, and nothing else of a batch moves."""
    config = train._parse([*tiny.REPPO, "--devices", "2", "--eval.num-envs", "4"]).config
    executor = programs.device.compile_programs(programs.build(config))
    text = executor._cycle.result().program.as_text()
    assert " all-reduce(" in text and " all-to-all(" not in text


def test_policy_evaluates_loads_and_exports(whole, tmp_path, capsys):
    assert evaluate.main([str(whole), "--episodes", "3"]) == 0
    assert "mean_reward" in capsys.readouterr().out
    assert export.main([str(whole), "--out", str(tmp_path / "out")]) == 0
    path = tmp_path / "out" / "policy.py"
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    found = module.Policy()(obs)
    np.testing.assert_allclose(found, jaxrl.load_policy(whole)(obs), atol=1e-5)


def test_dry_run_reports_the_batch(capsys):
    assert train.main([*tiny.REPPO, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "8 rows × 8 steps = 64" in out and "16 steps" in out


@pytest.mark.parametrize(
    "flags, complaint",
    [
        ("--env cartpole", "whose actions are discrete: use ppo, pqn or dqn"),
        ("--network.rnn lstm", "--network.rnn: --algo reppo learns from single steps"),
        ("--network.sde", "--network.sde is for ppo and sac"),
        ("--reppo.num-minibatches 5", "cannot split the 64 steps of a rollout"),
        ("--reppo.v-min 12", "--reppo.v-min must be below --reppo.v-max"),
        ("--devices 3", "--num-envs 8 does not divide over 3 devices: use 6 or 9"),
        (f"--env {OWN} --amp.weight 1", "--amp.weight is for --algo ppo, not reppo"),
    ],
)
def test_unsupported_settings_are_refused(flags, complaint, capsys):
    assert train.main([*tiny.REPPO, *flags.split()]) == 2
    assert complaint in capsys.readouterr().err


def test_algo_chooses_the_preset_of_the_algorithm():
    config = train._parse(["playground:CheetahRun", "--algo", "reppo"]).config
    assert config == presets.get("reppo-playground:CheetahRun")
    assert config == presets.get("playground:CheetahRun", algo="reppo")
    assert config.num_envs * config.reppo.rollout_length == 131_072
    assert train._parse(["ant", "--algo=sac"]).config == presets.get("sac-ant")
    assert train._parse(["ant", "--algo", "ppo"]).config == presets.get("ant")
    own = train._parse(["--env", "tests.helpers.custom_envs:Plain", "--algo", "reppo"]).config
    assert own.network.norm == "rms" and own.preset == "reppo-custom"


@pytest.mark.learning
def test_reppo_swings_up_the_pendulum(tmp_path, monkeypatch):
    monkeypatch.setattr(xla_options, "options", lambda *_, **__: stepping.OPTIMIZED)
    stop = callbacks.StopOnReward(-700)  # a policy that learns nothing stays near -1,200
    result = jaxrl.fit("reppo-pendulum", callbacks=[stop], devices=1, run_dir=tmp_path / "run")
    assert result.last_evaluation["eval/mean_reward"] >= -700
