"""PPO solves CartPole from the command line."""

import pytest

from jaxrl import train
from jaxrl.utils import xla_options
from tests.helpers import stepping, tiny


@pytest.mark.learning
def test_ppo_solves_cartpole(tmp_path, monkeypatch):
    monkeypatch.setattr(xla_options, "options", lambda *_, **__: stepping.OPTIMIZED)
    folder = tmp_path / "run"
    arguments = ["cartpole", "--devices", "1", "--epochs", "2", "--eval.num-envs", "32"]
    assert train.main([*arguments, "--seed", "1", "--run-dir", str(folder)]) == 0
    best = max(row.get("eval/mean_reward", 0.0) for row in tiny.rows(folder))
    assert best >= 475  # of 500; a policy that learns nothing stays near 20
