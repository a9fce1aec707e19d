"""MLflow gets the settings once, every point, and the policy, also after a resume."""

import contextlib
import sys
import types
from typing import NamedTuple

import pytest

from jaxrl.config import presets
from jaxrl.loggers import sinks


class Param(NamedTuple):
    key: str
    value: str


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Server:
    """Stands in for MLflow's client; what it was sent is in `runs`."""

    def __init__(self):
        self.experiments, self.runs = {}, {}

    def __call__(self):
        return self  # a client

    def get_experiment_by_name(self, name):
        number = self.experiments.get(name)
        return number and types.SimpleNamespace(experiment_id=number)

    def create_experiment(self, name):
        return self.experiments.setdefault(name, f"experiment-{name}")

    def search_runs(self, experiments, text):
        tag = text.removeprefix("tags.`jaxrl.run` = ").strip("'")
        return [r.entity for r in self.runs.values() if r.tag == tag and r.where in experiments]

    def create_run(self, experiment, run_name):
        info = types.SimpleNamespace(run_id=f"run-{len(self.runs)}")
        run = types.SimpleNamespace(
            where=experiment, name=run_name, tag="", batches=[], files=[], ended=0
        )
        run.entity = types.SimpleNamespace(info=info)
        self.runs[info.run_id] = run
        return run.entity

    def set_tag(self, run, tag, value):
        assert tag == "jaxrl.run"
        self.runs[run].tag = value

    def log_batch(self, run, metrics=(), params=()):
        assert len(params) <= 100  # the server refuses more
        self.runs[run].batches.append((list(metrics), list(params)))

    def log_artifact(self, run, file):
        self.runs[run].files.append(file)

    def set_terminated(self, run):
        self.runs[run].ended += 1


@pytest.fixture
def server(monkeypatch):
    package, entities, server = types.ModuleType("mlflow"), types.ModuleType("e"), Server()
    monkeypatch.setattr(package, "MlflowClient", server, raising=False)
    monkeypatch.setattr(entities, "Param", Param, raising=False)
    monkeypatch.setattr(entities, "Metric", Metric, raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return server


def _log(folder, points):
    config = presets.get("cartpole", **{"log.mlflow": True, "log.mlflow_experiment": "mine"})
    with contextlib.ExitStack() as stack:
        sink, upload = sinks.mlflow(config, folder, stack)
        for step, row in points:
            sink(step, row)
        upload(folder / "policy.npz")


def test_a_resumed_run_continues_the_same_one(server, tmp_path):
    (tmp_path / "provenance.json").write_text('{"began": 1}')
    _log(tmp_path, [(10, {"a": 1.0, "b": float("nan")}), (20, {"a": 2.0})])
    _log(tmp_path, [(30, {"a": 3.0})])
    (run,) = server.runs.values()
    assert run.where == "experiment-mine" and run.name == tmp_path.name and run.ended == 2
    params = dict(each for _, batch in run.batches for each in batch)
    assert params["env"] == "cartpole" and params["ppo.gamma"] == "0.98"
    assert len(params) == sum(len(batch) for _, batch in run.batches)  # sent once
    points = [(m.step, m.key, m.value) for batch, _ in run.batches for m in batch]
    assert points == [(10, "a", 1.0), (20, "a", 2.0), (30, "a", 3.0)]
    assert run.files == [str(tmp_path / "policy.npz")] * 2


def test_another_folder_is_another_run(server, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.json").write_text(f'{{"began": "{name}"}}')
        _log(tmp_path / name, [])
    assert len(server.runs) == 2
