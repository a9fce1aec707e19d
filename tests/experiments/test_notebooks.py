"""Notebooks run from top to bottom and are committed with the outputs of one run."""

import json
import os
import re

import pytest

from experiments import report, run
from experiments.notebooks.__main__ import HERE, ROOT, executed, main

NOTEBOOKS = {path.stem: path for path in sorted(HERE.glob("*.ipynb"))}
STUDIES = re.findall(r"run\.results\(\W+(\w+)", " ".join(p.read_text() for p in NOTEBOOKS.values()))
LOCAL_PATHS = re.compile(r"/(?:home|root|tmp|usr|work|mnt|Users)/")  # absolute paths of one machine


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs_from_top_to_bottom(name, monkeypatch):
    """Studies are read from their stored tables; other training is a smoke test."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    monkeypatch.setenv("XLA_FLAGS", " ".join(flags))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    if "run.results" not in NOTEBOOKS[name].read_text():
        monkeypatch.setenv("JAXRL_SMOKE", "1")
    assert "image/png" in executed(NOTEBOOKS[name])  # an error in a cell is raised


@pytest.mark.parametrize("name", STUDIES)
def test_studies_of_notebooks_run_as_smoke_tests(name, monkeypatch):
    """In this process: every kernel would import everything again."""
    monkeypatch.setenv("JAXRL_SMOKE", "1")
    study, records = run.results(name)
    assert {(record.variant, record.seed) for record in records} == set(study.cells())
    assert report.table(study, records) and report.draw_curves(study, records)
    assert report.draw_finals(study, records)


def test_every_notebook_except_the_tour_shows_a_study():
    assert len(STUDIES) == len(NOTEBOOKS) - 1  # all except the tour


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_committed_with_the_outputs_of_one_run(name):
    cells = json.loads(NOTEBOOKS[name].read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = json.dumps([cell["outputs"] for cell in code])
    assert "image/png" in outputs and '"error"' not in outputs
    assert not LOCAL_PATHS.search(re.sub(r'"image/png": "[^"]*"', "", outputs))


def test_unknown_notebook_suggests_the_closest_name(capsys):
    assert main(["tuor"]) == 2
    assert "Did you mean 'tour'" in capsys.readouterr().err
