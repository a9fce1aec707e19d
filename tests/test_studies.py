"""Studies: what is run together, what is not run again, and what comes out."""

import csv
import json
import math
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest

from experiments import origin, records, report, run
from experiments.origin import Origin
from experiments.records import Record
from experiments.study import HERE, PLAIN, Study, flags, grid, load
from jaxrl import presets, statistics, train
from jaxrl.config_changes import changed
from jaxrl.errors import UserError
from jaxrl.runtime import population
from tests.runtime import tiny

CONFIG = train._parse([*tiny.FLAGS, "--epochs", "1", "--cycles", "1"]).config


def test_settings_are_changed_by_their_names():
    config = changed(presets.get("ant"), {"ppo.lam": 0.5, "num_envs": 64})
    assert (config.ppo.lam, config.num_envs) == (0.5, 64)
    with pytest.raises(UserError, match="no setting 'ppo.lan'. Did you mean 'ppo.lam'"):
        changed(presets.get("ant"), {"ppo.lan": 0.5})


def test_grid():
    assert grid({"ppo.lam": (0, 1), "num_envs": (8,)}) == {
        "lam 0, num_envs 8": {"ppo.lam": 0, "num_envs": 8},
        "lam 1, num_envs 8": {"ppo.lam": 1, "num_envs": 8},
    }


def test_what_shapes_the_program_or_switches_a_part_off_is_run_apart():
    variants = [
        {},
        {"ppo.lam": 0.5},
        {"seed": 3},
        {"ppo.normalize_obs": False},
        {"ppo.bound_coef": 0.1},  # 0 elsewhere: the loss is not even there
        {"ppo.bound_coef": 0.2},
        {"ppo.lam": 0.0, "ppo.bootstrap_truncated": False},  # numbers like any other
    ]
    configs = [changed(CONFIG, changes) for changes in variants]
    assert population.groups(configs) == [[0, 1, 2, 6], [3], [4, 5]]
    with pytest.raises(UserError, match="traced settings only"):
        population.build(configs)


def test_members_learn_what_they_learn_alone():
    members = [changed(CONFIG, {"seed": 1}), changed(CONFIG, {"seed": 1, "ppo.learning_rate": 0.1})]
    together = population.build(members)
    state, _ = together.programs.train(together.first_state(), 0)
    weights = [np.asarray(state.learner.params["actor"]["params"]["head"]["kernel"])]
    for place, member in enumerate(members):
        alone = population.build([member])
        own, _ = alone.programs.train(alone.first_state(), 0)
        kernel = own.learner.params["actor"]["params"]["head"]["kernel"][0]
        np.testing.assert_allclose(weights[0][place], kernel, rtol=1e-3, atol=1e-4)
    assert not np.allclose(weights[0][0], weights[0][1], atol=1e-3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a small study has left."""
    out = tmp_path_factory.mktemp("study")
    assert run.main(["cartpole_basics", "--tiny", "--out", str(out)]) == 0
    return out


def test_a_study_leaves_a_table_and_pictures(folder):
    cells = load("cartpole_basics").shrunk().cells()
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["variant"], int(row["seed"])) for row in rows} == set(cells)
    assert len(rows) == 2 * len(cells)  # evaluations
    text = (folder / "results.md").read_text()
    assert PLAIN in text and "`ppo.lam = 0.0`" in text
    for name in ("curves.png", "finals.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_table_holds_all_that_was_kept(folder):
    kept = records.kept(folder / "runs.jsonl", load("cartpole_basics").shrunk().cells())
    written = [record._replace(origin=Origin()) for record in kept.values()]
    assert records.read_table(folder / "results.csv") == written
    assert len(kept[PLAIN, 1].figures["eval/mean_ep_length"]) == 2


def test_figures_that_only_some_have_are_gaps(tmp_path):
    runs = [Record("a", 0, [1, 2], {"x": [0.5, 1.5]}), Record("b", 0, [1], {"y": [math.nan]})]
    records.write_table(runs, tmp_path / "table.csv")
    a, b = records.read_table(tmp_path / "table.csv")
    assert (a.steps, a.figures["x"], b.steps) == ([1, 2], [0.5, 1.5], [1])
    assert np.isnan([*a.figures["y"], *b.figures["x"], *b.figures["y"]]).all()


def test_where_lower_is_better():
    study = Study("cartpole", {"less": {"ppo.lam": 0.5}}, metric="x")
    ends = {PLAIN: (2.0, 4.0), "less": (1.0, 3.0)}
    runs = [Record(v, i, [5], {"x": [x]}) for v, two in ends.items() for i, x in enumerate(two)]
    assert "| less | `ppo.lam = 0.5` | 2 | 1 to 3 | 25 % |" in report.table(study, runs)
    assert "| 1 to 3 | 75 % |" in report.table(replace(study, lower_is_better=True), runs)


def test_few_seeds_have_a_mean_and_a_range(tmp_path):
    study = Study("cartpole", {}, metric="x")
    for number, words in ((3, ("mean", "range")), (4, statistics.naming(4)[:2])):
        runs = [Record(PLAIN, seed, [5], {"x": [seed]}) for seed in range(number)]
        report.write("s", study, runs, tmp_path)
        text = (tmp_path / "results.md").read_text()
        assert f" as {words[0]}s with {words[1]}s over seeds" in text
        assert f"| {words[0]} | {words[1]} | better |" in text


def test_a_run_that_broke_is_the_worst():
    study = Study("cartpole", {"odd": {"ppo.lam": 0.5}}, metric="x")
    ends = {PLAIN: (1.0, 1.0, 1.0, 1.0), "odd": (2.0, 2.0, 2.0, math.nan)}
    runs = [Record(v, i, [5], {"x": [x]}) for v, all in ends.items() for i, x in enumerate(all)]
    for lower, better in ((False, 75), (True, 0)):
        judged = replace(study, lower_is_better=lower)
        row = report.table(judged, runs).splitlines()[-1]
        assert "| 2 |" in row and "nan" in row and row.endswith(f"| {better} % |")
        assert report.draw_curves(judged, runs) and report.draw_finals(judged, runs)


def test_settings_for_all_are_told_and_make_another_base(tmp_path):
    study = Study("cartpole", {"more": {"epochs": 3}}, settings={"epochs": 2}, metric="x")
    runs = [Record(PLAIN, 0, [1024], {"x": [1.0]}), Record("more", 0, [1536], {"x": [2.0]})]
    made = Origin("python -m experiments.run s --set epochs 2", "abc", "1 × GPU", "0.1")
    origin.write(tmp_path, study.settings, [made, made])
    report.write("s", study, runs, tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "Preset `cartpole` with `epochs = 2`." in text
    assert "| base |  | 1,024 | 1 |" in text and "| more | `epochs = 3` | 1,536 | 2 |" in text
    assert "1 seeds for each variant." in text and PLAIN not in text
    assert text.count("- `python -m experiments.run s --set epochs 2`, commit abc, 1 × GPU") == 1


def test_the_preset_as_it_is_is_called_so(tmp_path):
    study = Study("cartpole", {}, metric="x")
    report.write("s", study, [Record(PLAIN, 0, [1024], {"x": [1.0]})], tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert "1 seeds of 1,024 steps" in text and "| as it is |  | 1 |" in text and "Made" not in text


def test_what_made_the_results_is_kept(folder):
    _, (made,) = origin.read(folder) or ({}, [])
    assert made.command.startswith("python -m experiments.run cartpole_basics --tiny --out")
    assert made.devices.endswith("CPU cores") and made.jax
    text = (folder / "results.md").read_text()
    assert made.told() in text and "nothing can be learnt from this" in text


def test_results_are_told_anew_from_their_table(folder, tmp_path, capsys):
    """With the settings that were given then, whatever the study's file says now."""
    settings = {"num_envs": 7}
    shutil.copy(folder / "results.csv", tmp_path)
    origin.write(tmp_path, settings, [Origin("then")])
    assert report.main(["cartpole_basics", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "results.md").read_text()
    assert "`num_envs = 7`" in text and "- `then`" in text
    rows = [line for line in (folder / "results.md").read_text().splitlines() if "lambda" in line]
    assert rows and all(row in text for row in rows)
    assert report.main(["cartpole_basics", "--out", str(tmp_path / "none")]) == 2
    assert "has no results.csv" in capsys.readouterr().err


def test_what_is_needed_later_is_begun_early():
    order = []
    made = run._early("abc", lambda item: order.append(f"make {item}"), ahead=1)
    for item, _ in made:
        order.append(f"use {item}")
    assert order == ["make a", "make b", "use a", "make c", "use b", "use c"]


def test_settings_from_the_command_line(tmp_path, monkeypatch):
    found = {}
    monkeypatch.setattr(run, "execute", lambda name, study, *_: found.update({name: study}))
    given = ["--set", "task.episode_length", "30", "--set", "task.randomize", "a:b"]
    assert run.main(["cartpole_basics", "--out", str(tmp_path), *given]) == 0
    config = found["cartpole_basics"].cells()["lambda 1", 2]
    assert (config.task.episode_length, config.task.randomize, config.seed) == (30, "a:b", 2)


def test_values_of_a_wrong_type_are_named():
    with pytest.raises(UserError, match="'ppo.lam' has the unusable value 'much'"):
        Study("cartpole", {"odd": {"ppo.lam": "much"}}).cells()


def test_finished_runs_are_not_run_again(folder, monkeypatch, capsys):
    def refuse(*_):
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(population, "train", refuse)
    assert run.main(["cartpole_basics", "--tiny", "--out", str(folder)]) == 0
    assert "6 of 6 runs are finished already" in capsys.readouterr().out


def test_an_interrupted_or_changed_run_is_run_again(folder, tmp_path):
    kept = (folder / "runs.jsonl").read_text().splitlines()
    other = json.loads(kept[1])
    other["config"] = other["config"].replace('"lam": 0.95', '"lam": 0.94')
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join([kept[0], json.dumps(other), kept[2][:50]]))
    cells = load("cartpole_basics").shrunk().cells()
    assert records.kept(path, cells).keys() == {(PLAIN, 0)}


def test_a_run_is_kept_after_a_line_that_was_cut(tmp_path):
    path, cell = tmp_path / "runs.jsonl", (PLAIN, 0)
    path.write_text('{"variant": "a", "seed')
    points = [population.Point(5, ({"x": 1.0},))]
    record = records.of_member(cell, points, 0, Origin("python"))
    records.keep(path, record, CONFIG)
    expected = Record(PLAIN, 0, [5], {"x": [1.0]}, Origin("python"))
    assert records.kept(path, {cell: CONFIG}) == {cell: expected}


def test_studies_are_small_even_if_they_do_not_say_how():
    for name, envs in (("cartpole", 8), ("rrd-quick", 4)):
        small = Study(name, {"other": {"num_envs": 3}}).shrunk().cells()
        assert {config.num_envs for config in small.values()} == {envs}


def test_studies_that_do_not_exist(capsys):
    assert run.main(["cartpole_basic"]) == 2
    assert "Did you mean 'cartpole_basics'" in capsys.readouterr().err


def test_a_file_without_a_study_says_so(monkeypatch, capsys):
    monkeypatch.delattr("experiments.studies.cartpole_basics.STUDY")
    assert run.main(["cartpole_basics"]) == 2
    assert "cartpole_basics.py has no study: write STUDY = Study(" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given, text",
    [
        ({"seeds": 0}, "`seeds` must be at least 1, not 0"),
        ({"variants": {PLAIN: {"ppo.lam": 0.5}}}, "rename yours"),
        ({"variants": {"other": {"seed": 7}}}, "'seed' cannot be set"),
        ({"settings": {"seed": 7}}, "'seed' cannot be set"),
    ],
)
def test_what_would_not_be_run_as_it_says_is_refused(given, text):
    with pytest.raises(UserError, match=text):
        Study(**{"preset": "cartpole", "variants": {}} | given)


def test_what_runs_on_the_host_cannot_be_studied():
    with pytest.raises(UserError, match="jaxrl.train gym-cartpole --seed N"):
        Study("gym-cartpole", {}).cells()


def test_nothing_at_once_is_refused(capsys):
    assert run.main(["cartpole_basics", "--at-once", "0"]) == 2
    assert "--at-once must be at least 1, not 0" in capsys.readouterr().err


def test_a_misspelt_metric_is_named(folder, monkeypatch, capsys):
    """At the first evaluation, and where everything had been trained before."""
    wrong = replace(load("cartpole_basics"), metric="eval/mean_rewards")
    monkeypatch.setattr("experiments.studies.cartpole_basics.STUDY", wrong)
    point = population.Point(1, ({"eval/mean_reward": 1.0},) * 4)
    monkeypatch.setattr(population, "build", lambda members: None)
    monkeypatch.setattr(population, "train", lambda members, report, _: report(point))
    for out in (folder / "new", folder):
        assert run.main(["cartpole_basics", "--tiny", "--out", str(out)]) == 2
        text = "no 'eval/mean_rewards'. Did you mean 'eval/mean_reward'? There are: eval/"
        assert text in capsys.readouterr().err


def test_figures_of_successes_may_come_late():
    late = replace(load("imitation"), metric="eval/mpjpe_succ")
    late.check_metric(["eval/mpjpe_all"])
    assert late.shrunk().metric == "eval/mean_reward"  # of the task that stands in
    runs = [Record(PLAIN, 0, [1, 2], {"eval/mpjpe_all": [9.0, 8.0]})]
    assert np.isnan(report.by_variant(late, runs)[PLAIN][1]).all()


def test_an_interruption_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "execute", interrupted)
    assert run.main(["cartpole_basics", "--out", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_settings_as_the_command_line_takes_them():
    settings = {
        "task.randomize": "a:b c",
        "total_steps": None,
        "network.hidden": (8, 9),
        "ppo.normalize_obs": False,
        "task.episodic_reward": True,
        "offpolicy.rrd_bias_correction": False,
        "offpolicy.rrd_sample_size": 3,
    }
    words = shlex.split(flags(settings))
    assert train._parse(["cartpole", *words]).config == changed(presets.get("cartpole"), settings)


def test_every_study_can_be_run():
    for path in (HERE / "studies").glob("*.py"):
        study = load(path.stem)
        assert study.cells() and study.shrunk().cells()
        assert len(population.groups(list(study.shrunk().cells().values()))) <= 3
