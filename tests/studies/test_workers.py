"""Several processes work off one study on a shared disk."""

import threading
import time

import pytest

from jaxrl.loggers import lock_file
from jaxrl.studies import results, run, search, study, training, workers

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

CELLS = study.load("cartpole_basics").smoke_test().cells()


@pytest.fixture
def trained(monkeypatch):
    """The members of every program that was trained; training takes a moment and returns seeds."""
    groups = []

    def train(members, folder, check):
        del folder, check
        groups.append([(member.ppo.lam, member.seed) for member in members])
        time.sleep(0.3)
        return [training.Curve([1], {"eval/mean_reward": [float(m.seed)]}) for m in members]

    monkeypatch.setattr(training, "start", list)
    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(workers, "_WAIT", 0.05)
    return groups


def command(out):
    return run.main(["cartpole_basics", "--smoke", "--at-once", "1", "--shared", str(out)])


def test_no_program_is_trained_twice_and_results_are_those_of_one_worker(trained, tmp_path):
    statuses = []
    threads = [
        threading.Thread(target=lambda: statuses.append(command(tmp_path / "many")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [0, 0, 0]
    assert len(trained) == len(CELLS) and len(list((tmp_path / "many").glob("runs-*"))) > 1
    assert command(tmp_path / "one") == 0
    tables = [(tmp_path / name / "results.csv").read_text() for name in ("many", "one")]
    assert tables[0] == tables[1]


def test_programs_of_a_dead_worker_are_taken_over(trained, tmp_path, monkeypatch):
    parts = workers.divided(CELLS, 1)
    with workers._lease(tmp_path, [CELLS[cell] for cell in parts[0]]) as taken:
        assert taken
        with workers._lease(tmp_path, [CELLS[cell] for cell in parts[0]]) as again:
            assert not again
        monkeypatch.setattr(lock_file, "STALE", -1.0)  # no heartbeat was ever recent enough
        monkeypatch.setattr(lock_file, "_SETTLE", 0.0)
        assert command(tmp_path) == 0
    assert len(trained) == len(CELLS)
    assert results.finished_runs(tmp_path, CELLS).keys() == CELLS.keys()


def test_shared_folder_is_the_folder_of_results(tmp_path, capsys):
    words = ["--shared", str(tmp_path), "--out", str(tmp_path)]
    assert run.main(["cartpole_basics", *words]) == 2
    assert "--shared and --out: give one of them" in capsys.readouterr().err


def test_two_searches_share_their_trials(trained, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(search, "_WAIT", 0.05)
    journal = str(tmp_path / "trials.log")
    words = ["cartpole_basics", "--trials", "8", "--at-once", "2", "--storage", journal]
    statuses = []

    def work(name):
        statuses.append(search.main([*words, "--out", str(tmp_path / name)]))

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [0, 0]
    assert 8 <= sum(map(len, trained)) <= 10  # both may ask for the last ones at once
    tables = {(tmp_path / name / "search.md").read_text().count("\n|") for name in "ab"}
    assert min(tables) >= 10  # head and eight trials
