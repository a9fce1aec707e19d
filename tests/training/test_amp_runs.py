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
    *("--epochs", "2", "--cycles", "2", "--iterations", "40", "--num-envs", "64"),
    *("--ppo.learning-rate", "0.01", "--ppo.gamma", "0.5", "--network.init-std", "0.3"),
    *("--network.distribution", "normal", "--network.no-state-dependent-std"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two epochs without interruption."""
    return tiny.run(tmp_path_factory.mktemp("amp") / "whole", *AMP_FLAGS)


def test_policy_learns_the_demonstrated_speed(whole):
    rows = tiny.rows(whole)
    speed = [row["rollout/ep_speed"] / row["rollout/ep_len_mean"] for row in rows]
    assert speed[-1] == pytest.approx(0.5, abs=0.15)


def test_resume_equals_uninterrupted_run(whole, tmp_path):
    parts = tiny.run(tmp_path / "parts", *AMP_FLAGS, "--epochs", "1")
    assert train.main(["--resume", str(parts), "--env", PACER, "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(whole)
    tiny.assert_same_policy(parts, whole)
    assert 0 <= tiny.rows(whole)[-1]["amp/agent_accuracy"] <= 1


def test_amp_requires_demonstrations(tmp_path, capsys):
    flags = tiny.flags(tmp_path / "run", "--amp.weight", "1")
    assert train.main(flags) == 2
    assert "--amp.weight is a setting of --env imitation or heading" in capsys.readouterr().err
    own = "jaxrl.envs.tasks.classic:CartPole"  # an environment of one's own may have some
    assert train.main([*flags, "--env", own]) == 2
    assert f"--amp.weight: '{own}' has no demonstrations" in capsys.readouterr().err
