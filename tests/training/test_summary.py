"""The closing lines of a run."""

from pathlib import Path

from jaxrl.config import presets
from jaxrl.training import summary
from jaxrl.training.summary import Result

CONFIG = presets.get("cartpole")


def _result(mean, std=0.0, **changes):
    evaluation = {"eval/mean_reward": mean, "eval/std_reward": std, "eval/mean_ep_length": 50.0}
    return Result(Path("runs/x"), 1000, mean, evaluation, **changes)


def test_small_returns_keep_their_digits():
    text = summary.text(_result(0.8824, 0.01234), CONFIG)
    assert "last evaluation  0.8824 ± 0.01234   best 0.8824   length 50" in text
    assert "1,234.5 ± 0   best 1,234.5" in summary.text(_result(1234.5), CONFIG)
    text = summary.text(_result(0.0, members=(_result(0.8824), _result(-0.5))), CONFIG)
    assert "0.8824   best 0.8824" in text and "-0.5   best -0.5" in text
