"""AMP runs: the policy learns from the style reward alone, and resume is exact."""

import pytest

from jaxrl import train
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

PACER = "tests.helpers.custom_envs:Pacer"
AMP_FLAGS = (
    *("--env", PACER, "--task.episode-length", "10", "--eval.num-envs", "4"),
    *("--amp.weight", "1", "--amp.batch-size", "32", "--amp.updates", "4"),
    *("--amp.hidden", "16", "--amp.replay", "64", "--amp.learning-rate", "0.003"),
)


def test_resume_equals_uninterrupted_run(tmp_path):
    long = tiny.run(tmp_path / "long", *AMP_FLAGS, "--epochs", "3")
    short = tiny.run(tmp_path / "short", *AMP_FLAGS, "--epochs", "1")
    assert train.main(["--resume", str(short), "--env", PACER, "--epochs", "3"]) == 0
    assert tiny.rows(short) == tiny.rows(long)
    tiny.assert_same_policy(short, long)
    assert 0 <= tiny.rows(long)[-1]["amp/agent_accuracy"] <= 1


def test_policy_learns_the_demonstrated_speed(tmp_path):
    settings = ("--epochs", "2", "--cycles", "2", "--iterations", "40", "--num-envs", "64")
    learning = ("--ppo.learning-rate", "0.01", "--ppo.gamma", "0.5", "--network.init-std", "0.3")
    normal = ("--network.distribution", "normal", "--network.no-state-dependent-std")
    folder = tiny.run(tmp_path / "run", *AMP_FLAGS, *settings, *learning, *normal)
    rows = tiny.rows(folder)
    speed = [row["rollout/ep_speed"] / row["rollout/ep_len_mean"] for row in rows]
    assert speed[-1] == pytest.approx(0.5, abs=0.15)


def test_amp_requires_demonstrations(tmp_path, capsys):
    flags = tiny.flags(tmp_path / "run", "--amp.weight", "1")
    assert train.main(flags) == 2
    assert "--amp.weight: 'cartpole' has no demonstrations" in capsys.readouterr().err
