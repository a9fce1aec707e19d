"""Notebooks run from top to bottom and are committed with the outputs of one run."""

import json
import os
import re
import sys

import pytest

from experiments.notebooks.__main__ import HERE, ROOT, executed, main
from jaxrl import programs
from jaxrl.studies import report, results, run, study
from jaxrl.studies.results import Record
from jaxrl.training import population
from tests.docs.shrinking import with_stand_in
from tests.helpers.stepping import trace_iteration

NOTEBOOKS = {path.stem: path for path in sorted(HERE.glob("*.ipynb"))}
STUDIES = re.findall(r"run\.results\(\W+(\w+)", " ".join(p.read_text() for p in NOTEBOOKS.values()))
# What comes before each notebook. Nine members would leave two plots each beside those shown.
SETTING = """import os
os.chdir("{root}")
import tests.helpers.faster
from jaxrl.reports import plots
os.environ["JAXRL_SMOKE"] = "{smoke}"
plots.learning_curve = plots.learning_phases = plots.population_curve = lambda *_: None
%reset -f"""
LOCAL_PATHS = re.compile(r"/(?:home|root|tmp|usr|work|mnt|Users)/")  # absolute paths of one machine


def test_notebooks_run_from_top_to_bottom(tmp_path, monkeypatch):
    """All in one kernel, which imports everything once; variables are reset in between.

    Studies are read from their stored tables; other training is a smoke test.
    """
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    monkeypatch.setenv("XLA_FLAGS", " ".join(flags))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    whole = nbformat.v4.new_notebook()
    for path in NOTEBOOKS.values():
        smoke = "" if "run.results" in path.read_text() else "1"
        setting = SETTING.format(smoke=smoke, root=ROOT)
        cells = nbformat.read(path, as_version=4).cells
        whole.cells += [nbformat.v4.new_code_cell(setting, id=f"begin-{path.stem}"), *cells]
    for number, cell in enumerate(whole.cells):
        cell.outputs = [] if cell.cell_type == "code" else cell.get("outputs")
        cell.id = f"cell-{number}"
    nbformat.write(whole, tmp_path / "whole.ipynb")
    made = nbformat.reads(executed(tmp_path / "whole.ipynb"), as_version=4)  # errors are raised
    parts = json.dumps(made).split("%reset -f")[1:]
    assert [name for name, part in zip(NOTEBOOKS, parts, strict=True) if "image/png" in part] == [
        *NOTEBOOKS
    ]


@pytest.mark.parametrize("name", STUDIES)
def test_studies_of_notebooks_can_be_trained(name, monkeypatch):
    """Every program is built and traced; a cheap environment replaces physics."""
    monkeypatch.setenv("JAXRL_SMOKE", "1")
    cells = study.load(name).smoke_test().cells()
    configs = [with_stand_in(config) for config in cells.values()]
    for first, *_ in population.groups(configs):  # members of a group share a program
        trace_iteration(programs.build(configs[first]))


@pytest.mark.parametrize("name", STUDIES)
def test_notebooks_run_and_draw_a_study_without_stored_results(name, monkeypatch):
    """Training is replaced by made-up returns."""

    def execute(name, chosen, out):
        metrics = {chosen.metric: [1.0, 2.0]}
        made = [Record(variant, seed, [10, 20], metrics) for variant, seed in chosen.cells()]
        results.write_table(made, out / "results.csv")

    monkeypatch.setenv("JAXRL_SMOKE", "1")
    monkeypatch.setattr(run, "execute", execute)
    chosen, records = run.results(name)
    assert chosen.is_smoke_test
    assert {(record.variant, record.seed) for record in records} == set(chosen.cells())
    assert report.table(chosen, records) and report.draw_curves(chosen, records)
    assert report.draw_finals(chosen, records)


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


@pytest.mark.parametrize(
    "files, gpu, installed",
    [
        ([], False, "jaxrl"),
        (["jaxrl-0.1.0-py3-none-any.whl"], True, "jaxrl-0.1.0-py3-none-any.whl[gpu12]"),
    ],
)
def test_tour_installs_in_colab_only(files, gpu, installed, tmp_path, monkeypatch):
    inputtransformer = pytest.importorskip("IPython.core.inputtransformer2")
    cells = json.loads(NOTEBOOKS["tour"].read_text())["cells"]
    first = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    magics = []

    class Shell:
        def run_line_magic(self, name, line):
            magics.append((name, line.format(**scope)))

    scope = {"get_ipython": Shell}
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr("shutil.which", lambda name: "/bin/true" if gpu else None)
    program = inputtransformer.TransformerManager().transform_cell(first)
    exec(program, scope)
    assert magics == []
    monkeypatch.setitem(sys.modules, "google.colab", object())
    exec(program, scope)
    assert magics == [("pip", f'install -q "{installed}"')]


def test_tour_needs_the_installed_package_only():
    """In Colab there is no clone, so no `experiments`."""
    cells = json.loads(NOTEBOOKS["tour"].read_text())["cells"]
    code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert not re.search(r"(?:import|from) (?:experiments|benchmarks|tests)\b", code)


def test_unknown_notebook_suggests_the_closest_name(capsys):
    assert main(["tuor"]) == 2
    assert "Did you mean 'tour'" in capsys.readouterr().err
