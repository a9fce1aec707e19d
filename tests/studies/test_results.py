"""Tables and reports of studies."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl.studies import provenance, report, results
from jaxrl.studies.provenance import Provenance
from jaxrl.studies.results import Record
from jaxrl.studies.study import BASE, Study, load
from jaxrl.utils import stats

STUDIES = Path(__file__).parents[2] / "experiments" / "studies"
RESULTS = STUDIES.with_name("results")
TABLES = {path.parent.name: path.parent for path in sorted(RESULTS.glob("*/results.csv"))}


def test_metrics_missing_from_some_runs_are_nan(tmp_path):
    runs = [Record("a", 0, [1, 2], {"x": [0.5, 1.5]}), Record("b", 0, [1], {"y": [math.nan]})]
    results.write_table(runs, tmp_path / "table.csv")
    a, b = results.read_table(tmp_path / "table.csv")
    assert (a.steps, a.metrics["x"], b.steps) == ([1, 2], [0.5, 1.5], [1])
    assert np.isnan([*a.metrics["y"], *b.metrics["x"], *b.metrics["y"]]).all()


def test_lower_is_better():
    study = Study("cartpole", {"less": {"ppo.lam": 0.5}}, metric="x")
    ends = {BASE: (2.0, 4.0), "less": (1.0, 3.0)}
    runs = [Record(v, i, [5], {"x": [x]}) for v, two in ends.items() for i, x in enumerate(two)]
    assert "| less | `ppo.lam = 0.5` | 2 | 1 to 3 | 25 % |" in report.table(study, runs)
    assert "| 1 to 3 | 75 % |" in report.table(replace(study, lower_is_better=True), runs)


def test_few_seeds_are_shown_as_mean_and_range(tmp_path):
    study = Study("cartpole", {}, metric="x")
    for number, words in ((3, ("mean", "range")), (4, stats.labels(4)[:2])):
        runs = [Record(BASE, seed, [5], {"x": [seed]}) for seed in range(number)]
        report.write("s", study, runs, tmp_path)
        text = (tmp_path / "results.md").read_text()
        assert f" as {words[0]}s with {words[1]}s over seeds" in text
        assert f"| {words[0]} | {words[1]} | better |" in text


@pytest.mark.parametrize("name", TABLES)
def test_stored_reports_are_up_to_date(name):
    """`python -m jaxrl.studies.report STUDY` writes them."""
    out = TABLES[name]
    assert (out / "results.md").read_text() == report.text(name, *report.stored(name, out), out)


def test_diverged_run_ranks_worst():
    study = Study("cartpole", {"odd": {"ppo.lam": 0.5}}, metric="x")
    ends = {BASE: (1.0, 1.0, 1.0, 1.0), "odd": (2.0, 2.0, 2.0, math.nan)}
    runs = [Record(v, i, [5], {"x": [x]}) for v, all in ends.items() for i, x in enumerate(all)]
    for lower, better in ((False, 75), (True, 0)):
        directed = replace(study, lower_is_better=lower)
        row = report.table(directed, runs).splitlines()[-1]
        assert "| 2 |" in row and "diverged" in row and row.endswith(f"| {better} % |")
        assert report.draw_curves(directed, runs) and report.draw_finals(directed, runs)


def test_common_settings_are_listed(tmp_path):
    study = Study("cartpole", {"more": {"epochs": 3}}, settings={"epochs": 2}, metric="x")
    runs = [Record(BASE, 0, [1024], {"x": [1.0]}), Record("more", 0, [1536], {"x": [2.0]})]
    made = Provenance("jaxrl study s --set epochs 2", "abc", "1 × GPU", "0.1")
    provenance.write(tmp_path, study.settings, [made, made])
    report.write("s", study, runs, tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "Preset `cartpole` with `epochs = 2`." in text
    assert "| base |  | 1,024 | 1 |" in text and "| more | `epochs = 3` | 1,536 | 2 |" in text
    assert "1 seed for each variant." in text and "better than *base*, these settings" in text
    assert text.count("- `jaxrl study s --set epochs 2`, commit abc, 1 × GPU") == 1


def test_unchanged_preset_is_called_base(tmp_path):
    study = Study("cartpole", {}, metric="x")
    report.write("s", study, [Record(BASE, 0, [1024], {"x": [1.0]})], tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "1 seed of 1,024 steps" in text and "| base |  | 1 |" in text and "Made" not in text


def test_report_is_rewritten_from_its_table(tmp_path, capsys):
    """The stored settings are used, not those in the study's file."""
    assert report.main(["cartpole_basics", "--out", str(tmp_path)]) == 2
    assert "has no results.csv" in capsys.readouterr().err
    metric = load("cartpole_basics").metric
    runs = [Record(v, 0, [5], {metric: [x]}) for v, x in ((BASE, 2.0), ("lambda 0", 1.0))]
    results.write_table(runs, tmp_path / "results.csv")
    provenance.write(tmp_path, {"num_envs": 7}, [Provenance("then")])
    assert report.main(["cartpole_basics", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "results.md").read_text()
    assert "`num_envs = 7`" in text and "- `then`" in text
    assert "| lambda 0 | `ppo.lam = 0.0` | 1 | 1 to 1 | 0 % |" in text


def test_report_marks_smoke_tests(tmp_path):
    small = load("cartpole_basics").smoke_test()
    runs = [Record(v, 0, [5], {small.metric: [1.0]}) for v in (BASE, *small.variants)]
    results.write_table(runs, tmp_path / "results.csv")
    provenance.write(tmp_path, {}, [Provenance("then")], smoke_test=True)
    assert report.main(["cartpole_basics", "--out", str(tmp_path)]) == 0
    assert "these are not results" in (tmp_path / "results.md").read_text()


def test_variants_removed_from_a_study_are_named(tmp_path, capsys):
    runs = [Record(v, 0, [5], {"eval/mean_reward": [1.0]}) for v in (BASE, "renamed since")]
    results.write_table(runs, tmp_path / "results.csv")
    assert report.main(["cartpole_basics", "--out", str(tmp_path)]) == 2
    assert "a variant 'renamed since' that the study lacks" in capsys.readouterr().err


def test_metrics_of_successes_may_appear_late():
    late = replace(load("imitation"), metric="eval/mpjpe_succ")
    late.check_metric(["eval/mpjpe_all"])
    assert late.smoke_test().metric == "eval/mean_reward"  # the metric of the stand-in environment
    runs = [Record(BASE, 0, [1, 2], {"eval/mpjpe_all": [9.0, 8.0]})]
    assert np.isnan(report.by_variant(late, runs)[BASE][1]).all()


@pytest.mark.parametrize(
    "name", [path.stem for path in STUDIES.glob("*.py") if path.stem != "__init__"]
)
def test_no_two_variants_are_equal(name):
    """A changed preset could make two variants equal and the results misleading."""
    cells = load(name).cells()
    first = {variant: repr(config) for (variant, seed), config in cells.items() if seed == 0}
    assert len(set(first.values())) == len(first)
