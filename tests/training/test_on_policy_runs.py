"""Runs of REPPO and PQN: exact resume on two devices, their policies, and refused settings."""

import importlib.util
import json

import numpy as np
import pytest

import jaxrl
from jaxrl import callbacks, evaluate, export, programs, train
from jaxrl.config import presets
from jaxrl.utils import xla_options
from tests.helpers import stepping, tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

OWN = "jaxrl.envs.tasks.classic:Pendulum"
FLAGS = {"reppo": tiny.REPPO, "pqn": tiny.PQN}
OBS_SIZES = {"reppo": 3, "pqn": 4}


def run(algo, folder, *extra):
    words = [*FLAGS[algo], "--eval.num-envs", "4", "--run-dir", str(folder), *extra]
    assert train.main(words) == 0
    return folder


@pytest.fixture(scope="module", params=FLAGS)
def algo(request):
    return request.param


@pytest.fixture(scope="module")
def whole(algo, tmp_path_factory):
    return run(algo, tmp_path_factory.mktemp("runs") / "whole", "--devices", "2")


def test_resume_equals_one_long_run(algo, whole, tmp_path):
    parts = run(algo, tmp_path / "parts", "--devices", "2", "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(whole)
    tiny.assert_same_policy(parts, whole)
    last = tiny.rows(whole)[-1]
    assert last["train/n_updates"] == 8 * 8 and last["train/n_skipped"] == 0
    assert last["train/q_loss"] > 0


def test_minibatches_are_split_over_devices_without_moving_steps(algo):
    """Rows of a device stay there: gradients are summed, and nothing else of a batch moves."""
    config = train._parse([*FLAGS[algo], "--devices", "2", "--eval.num-envs", "4"]).config
    executor = programs.device.compile_programs(programs.build(config))
    text = executor._cycle.result().program.as_text()
    assert " all-reduce(" in text and " all-to-all(" not in text


def test_policy_evaluates_loads_and_exports(algo, whole, tmp_path, capsys):
    assert evaluate.main([str(whole), "--episodes", "3"]) == 0
    assert "mean_reward" in capsys.readouterr().out
    assert export.main([str(whole), "--out", str(tmp_path / "out")]) == 0
    path = tmp_path / "out" / "policy.py"
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    obs = np.random.default_rng(0).normal(size=(50, OBS_SIZES[algo])).astype(np.float32)
    found = module.Policy()(obs)
    np.testing.assert_allclose(found, jaxrl.load_policy(whole)(obs), atol=1e-5)


def test_dry_run_reports_the_batch(algo, capsys):
    assert train.main([*FLAGS[algo], "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "8 rows × 8 steps = 64" in out and "16 steps" in out


@pytest.mark.parametrize(
    "algo, flags, complaint",
    [
        ("reppo", "--env cartpole", "whose actions are discrete: use ppo, pqn or dqn"),
        ("pqn", "--env pendulum", "whose actions are continuous: use ppo, reppo, sac or td3"),
        ("reppo", "--network.rnn lstm", "--network.rnn: --algo reppo learns from single steps"),
        ("pqn", "--network.rnn lstm", "--network.rnn: --algo pqn learns from single steps"),
        ("reppo", "--network.sde", "--network.sde is for ppo and sac"),
        ("reppo", "--reppo.num-minibatches 5", "cannot split the 64 steps of a rollout"),
        ("pqn", "--pqn.num-minibatches 5", "--pqn.num-minibatches 5 cannot split the 64 steps"),
        ("reppo", "--reppo.v-min 12", "--reppo.v-min must be below --reppo.v-max"),
        ("reppo", "--devices 3", "--num-envs 8 is not divisible by 3 devices: use 6 or 9"),
        ("reppo", f"--env {OWN} --amp.weight 1", "--amp.weight is for --algo ppo, not reppo"),
        ("pqn", "--data.path x", "--data.path"),
        ("pqn", "--offpolicy.gamma 0.9", "--offpolicy.gamma"),
    ],
)
def test_unsupported_settings_are_refused(algo, flags, complaint, capsys):
    assert train.main([*FLAGS[algo], *flags.split()]) == 2
    assert complaint in capsys.readouterr().err


def test_algo_chooses_the_preset_of_the_algorithm():
    config = train._parse(["playground:CheetahRun", "--algo", "reppo"]).config
    assert config == presets.get("reppo-playground:CheetahRun")
    assert config == presets.get("playground:CheetahRun", algo="reppo")
    assert config.num_envs * config.reppo.rollout_length == 131_072
    assert train._parse(["ant", "--algo=sac"]).config == presets.get("sac-ant")
    assert train._parse(["ant", "--algo", "ppo"]).config == presets.get("ant")
    assert train._parse(["cartpole", "--algo", "pqn"]).config == presets.get("pqn-cartpole")
    own = train._parse(["--env", "tests.helpers.custom_envs:Plain", "--algo", "reppo"]).config
    assert own.network.norm == "rms" and own.preset == "reppo-custom"


def test_members_of_a_population_learn_at_their_own_rates(tmp_path):
    run("pqn", tmp_path / "many", "--vary", "pqn.learning-rate=0,1e-2")
    logs = sorted((tmp_path / "many").glob("*/metrics.jsonl"))
    first = [json.loads(log.read_text().splitlines()[0]) for log in logs]
    assert [row["train/learning_rate"] for row in first] == pytest.approx([0, 1e-2])


@pytest.mark.learning
@pytest.mark.parametrize(
    "preset, enough",
    [
        ("reppo-pendulum", -700),  # a policy that learns nothing stays near -1,200
        ("pqn-cartpole", 450),  # random actions stay below 30
    ],
)
def test_presets_learn(preset, enough, tmp_path, monkeypatch):
    monkeypatch.setattr(xla_options, "options", lambda *_, **__: stepping.OPTIMIZED)
    stop = callbacks.StopOnReward(enough)
    result = jaxrl.fit(preset, callbacks=[stop], devices=1, run_dir=tmp_path / "run")
    assert result.last_evaluation["eval/mean_reward"] >= enough
