"""monitor.csv has every training episode, and survives a resume."""

import contextlib
import csv

import numpy as np
import pytest

from jaxrl import train
from jaxrl.loggers.monitor import Monitor
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("monitor") / "run", "--log.episodes")


def _episodes(folder):
    first, *lines = (folder / "monitor.csv").read_text().splitlines()
    assert first == '#{"env_id": "cartpole"}' and lines[0] == "r,l,t,step"
    return [(float(r["r"]), int(r["l"]), int(r["step"])) for r in csv.DictReader(lines)]


def test_every_episode_has_a_row(run):
    """Means, counts and steps agree with what the device has summed up."""
    episodes, before, seen = _episodes(run), 0, 0
    for row in tiny.rows(run):
        inside = [e for e in episodes if before < e[2] <= row["step"]]
        seen, before = seen + len(inside), row["step"]
        assert row["rollout/episodes"] == seen
        if inside:
            returns, lengths, _ = np.mean(inside, axis=0)
            assert returns == pytest.approx(row["rollout/ep_rew_mean"], rel=1e-5)
            assert lengths == pytest.approx(row["rollout/ep_len_mean"], rel=1e-5)
        expected = np.mean([e[:2] for e in episodes[:seen][-100:]], axis=0)
        found = [row[f"rollout/ep_{name}_mean_100"] for name in ("rew", "len")]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert seen == len(episodes) > 10
    assert all(step % 8 == 0 for *_, step in episodes)  # environments step together


def test_resumed_run_repeats_no_episode(run, tmp_path):
    parts = tiny.run(tmp_path / "parts", "--log.episodes", "--epochs", "1")
    with (parts / "monitor.csv").open("a") as file:
        file.write("1,2,3,9999\n4,5")  # played after the checkpoint, and cut off
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert _episodes(parts) == _episodes(run)
    assert tiny.rows(parts) == tiny.rows(run)


def test_means_are_of_the_last_hundred(tmp_path):
    returns = np.arange(250.0).reshape(5, 5, 10)
    with contextlib.ExitStack() as stack:
        monitor = Monitor(tmp_path, "cartpole", stack, None)
        assert monitor.means() == {}
        steps = np.arange(1, 26).reshape(5, 5)
        monitor.add(steps, {"return": returns, "length": np.ones_like(returns)}, 1.5)
        expected = {"rollout/ep_rew_mean_100": 199.5, "rollout/ep_len_mean_100": 1.0}
        assert monitor.means() == expected
    with contextlib.ExitStack() as stack:
        again = Monitor(tmp_path, "cartpole", stack, resumed_at=20)
        again.add(steps[:0], {"return": returns[:0], "length": returns[:0]}, 2.0)
        assert again.means()["rollout/ep_rew_mean_100"] == 149.5
