"""Several processes work off one study on a shared disk."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace

import pytest

from jaxrl.loggers import lock_file
from jaxrl.studies import results, run, search, study, training, workers
from jaxrl.studies.provenance import Provenance

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


STUDY = """\
from jaxrl.studies import Study, smoke_configs
STUDY = Study("cartpole", {"lambda 1": {"ppo.lam": 1.0}}, 1, smoke_configs.PPO | {"epochs": 6})
"""


def test_killed_worker_is_replaced_and_results_are_those_of_one(tmp_path, monkeypatch):
    """SIGKILL in the midst of a program, which another worker continues from its checkpoint."""
    file, shared = tmp_path / "pole.py", tmp_path / "shared"
    file.write_text(STUDY)
    command = [str(file), "--at-once", "1"]
    words = [sys.executable, "-m", "jaxrl.studies.run", *command, "--shared", str(shared)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as worker:
        while worker.poll() is None and not list(shared.glob("runs/*/checkpoints/[0-9]*")):
            time.sleep(0.01)
        worker.kill()
        assert worker.wait() == -signal.SIGKILL, worker.stdout and worker.stdout.read().decode()
    (lease,) = shared.glob(f"leases/*/{lock_file.NAME}")
    assert json.loads(lease.read_text())["pid"] == worker.pid
    assert not list(shared.glob("runs-*.jsonl"))
    evaluated, check = [], training._MetricCheck.on_evaluation

    def recorded(self, context):
        evaluated.append(context.cycle)
        check(self, context)

    monkeypatch.setattr(training._MetricCheck, "on_evaluation", recorded)
    for name, seconds in {"STALE": 1.0, "_SETTLE": 0.1}.items():
        monkeypatch.setattr(lock_file, name, seconds)
    monkeypatch.setattr(workers, "_WAIT", 0.05)
    assert run.main([*command, "--shared", str(shared)]) == 0
    whole = list(range(1, 7))
    assert sorted(evaluated) == sorted(whole + whole[12 - len(evaluated) :])
    assert 6 < len(evaluated) < 12  # what was saved is not trained again
    assert run.main([*command, "--out", str(tmp_path / "one")]) == 0
    tables = [(tmp_path / name / "results.csv").read_text() for name in ("shared", "one")]
    assert tables[0] == tables[1]


def test_program_whose_results_are_not_visible_yet_is_not_trained_again(trained, tmp_path):
    """NFS may show the end of a lease before the results."""
    part = workers.divided(CELLS, 1)[0]
    with workers._lease(tmp_path, [CELLS[cell] for cell in part]) as lease:
        (lease / "done").write_text("runs-other.jsonl")
    (tmp_path / "runs-other.jsonl").touch()

    def train():
        chosen = study.load("cartpole_basics").smoke_test()
        return workers._train(chosen, CELLS, part, tmp_path, "runs-own.jsonl", Provenance())

    assert not train() and not trained
    (tmp_path / "runs-other.jsonl").unlink()  # by a person, who wants them again
    assert train() and len(trained) == 1
    assert (lease / "done").read_text() == "runs-own.jsonl"


def test_shared_folder_is_the_folder_of_results(tmp_path, capsys):
    words = ["--shared", str(tmp_path), "--out", str(tmp_path)]
    assert run.main(["cartpole_basics", *words]) == 2
    assert "--shared and --out: give one of them" in capsys.readouterr().err


@pytest.fixture(params=["{}/trials.log", "sqlite:///{}/trials.db", "postgresql"])
def storage(request, tmp_path):
    """An empty storage; for PostgreSQL, in the database that JAXRL_POSTGRES names."""
    pytest.importorskip("optuna")
    if request.param != "postgresql":
        yield request.param.format(tmp_path)
        return
    url = os.environ.get("JAXRL_POSTGRES")
    if not url:
        pytest.skip("JAXRL_POSTGRES does not name a database")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    schema, database = f"jaxrl_{uuid.uuid4().hex}", sqlalchemy.create_engine(url)
    with database.begin() as connection:
        connection.execute(sqlalchemy.text(f"CREATE SCHEMA {schema}"))
    yield f"{url}?options=-csearch_path%3D{schema}"
    with database.begin() as connection:
        connection.execute(sqlalchemy.text(f"DROP SCHEMA {schema} CASCADE"))
    database.dispose()


def test_two_searches_share_their_trials(trained, tmp_path, monkeypatch, storage):
    monkeypatch.setattr(search, "_WAIT", 0.05)
    words = ["cartpole_basics", "--trials", "8", "--at-once", "2", "--storage", storage]
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


def test_interrupted_trials_do_not_hold_other_searches(trained, tmp_path, monkeypatch, storage):
    optuna = pytest.importorskip("optuna")
    words = ["cartpole_basics", "--at-once", "2", "--out", str(tmp_path), "--storage", storage]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "train", interrupted)
        assert search.main([*words, "--trials", "2"]) == 130
    # Those of a killed process: its heartbeats have ended, if the storage has any.
    chosen = replace(study.load("cartpole_basics"), seeds=1)
    searched = search._opened(optuna, chosen, tmp_path / "no", storage)
    assert [trial.state.name for trial in searched.trials] == ["FAIL", "FAIL"]
    if "://" in storage:
        lost = searched.ask()
        searched._storage.record_heartbeat(lost._trial_id)
        monkeypatch.setattr(search, "_LOST", 1)
        time.sleep(1.1)
    assert search.main([*words, "--trials", "2"]) == 0
    states = [trial.state.name for trial in searched.trials]
    assert states.count("COMPLETE") == 2 and "RUNNING" not in states
