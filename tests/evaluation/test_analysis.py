"""Analysis of evaluation episodes: confidence intervals, failures and their metrics."""

import json
import re

import numpy as np
import pytest

from jaxrl import evaluate
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs")

ENV_FLAGS = ["--env", "tests.helpers.nan_envs:Push"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    short = ["--epochs", "1", "--cycles", "1", "--eval.num-envs", "0"]
    return tiny.run(folder, *ENV_FLAGS, "--backend", "None", "--task.episode-length", "6", *short)


@pytest.fixture(scope="module")
def report(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "result.json"
    assert evaluate.main([str(run), *ENV_FLAGS, "--episodes", "40", "--out", str(out)]) == 0
    return json.loads(out.read_text()) | {"file": out}


def test_failures_are_listed_with_their_metrics(report):
    starts = np.array(report["starts"])
    assert starts.shape == (40, 2)
    failed = np.flatnonzero(starts[:, 0] <= 0)
    assert [f["episode"] for f in report["failures"]] == failed.tolist()
    assert report["success_rate"] == pytest.approx(1 - len(failed) / 40)
    for failure in report["failures"]:
        x, y = starts[failure["episode"]]
        assert failure["start"] == pytest.approx([x, y])
        assert failure["grasped"] == (x > -0.5)  # set at a single step only
        assert failure["timed_out"] and failure["length"] == 6
        assert failure["effort"] == pytest.approx(6 * abs(y), rel=1e-5)
        assert failure["reward"] == pytest.approx(6 * x, rel=1e-5)


def test_metrics_by_outcome_and_success_by_region(report):
    outcome, starts = report["by_outcome"], np.array(report["starts"])
    assert outcome["timed_out"] == {"failed": 1.0, "succeeded": 0.0}
    failed = starts[:, 0] <= 0
    assert outcome["grasped"]["succeeded"] == 1.0
    assert outcome["grasped"]["failed"] == pytest.approx(np.mean(starts[failed, 0] > -0.5))
    assert outcome["effort"]["succeeded"] == pytest.approx(
        3 * np.abs(starts[~failed, 1]).mean(), rel=1e-5
    )
    regions = report["success_by_region"]
    assert sum(r["episodes"] for r in regions) == 40 and len(regions) == 4
    median = np.median(starts, axis=0)
    corner = (starts <= median).all(axis=1)
    assert regions[0]["success_rate"] == pytest.approx(np.mean(~failed[corner]))


def test_plot_of_start_positions_is_written(report):
    assert report["file"].with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


def test_replayed_episodes_match_the_evaluation(run, report, tmp_path, capsys):
    numbers = [f["episode"] for f in report["failures"]][:3]
    out = tmp_path / "again.json"
    flags = ["--only", *map(str, numbers), "--out", str(out)]
    assert evaluate.main([str(run), *ENV_FLAGS, *flags]) == 0
    again = json.loads(out.read_text())
    assert again["episodes"] == 3 and again["success_rate"] == 0.0
    assert [f["episode"] for f in again["failures"]] == numbers
    assert again["returns"] == pytest.approx([report["returns"][i] for i in numbers])
    assert again["starts"] == [report["starts"][i] for i in numbers]
    printed = capsys.readouterr().out
    assert "3 of 3 episodes failed" in printed
    assert f"--seed 0 --only {' '.join(map(str, numbers))}" in printed
    assert re.search(r"success_rate +0 +\(95%: 0 to 0\.56", printed)


def test_invalid_episode_numbers_are_rejected(run, capsys):
    assert evaluate.main([str(run), *ENV_FLAGS, "--only", "-1"]) == 2
    assert "--only must lie between 0 and" in capsys.readouterr().err
    assert evaluate.main([str(run), *ENV_FLAGS, "--only", "1", "--episodes", "3"]) == 2
    assert "not both" in capsys.readouterr().err


def test_without_a_success_metric_only_intervals_are_reported(tmp_path, capsys):
    folder = tiny.run(tmp_path / "run", "--epochs", "1", "--eval.num-envs", "0")
    assert evaluate.main([str(folder), "--episodes", "5"]) == 0
    report = json.loads((folder / "evaluation-best.json").read_text())
    assert "failures" not in report
    low, high = report["confidence"]["mean_reward"]
    assert low <= report["mean_reward"] <= high
    assert "95%" in capsys.readouterr().out
