"""Studies: what is run together, what is not run again, and what comes out."""

import contextlib
import csv
import json
import math
import shlex
import signal
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from experiments import provenance, results, run, unfinished
from experiments.provenance import Origin
from experiments.results import Record
from experiments.study import HERE, PLAIN, Study, flags, grid, load
from jaxrl import train
from jaxrl.config import presets
from jaxrl.config.overrides import changed
from jaxrl.errors import UserError
from jaxrl.training import population, signals
from tests.helpers import tiny

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
    kept = results.kept(folder / "runs.jsonl", load("cartpole_basics").shrunk().cells())
    written = [record._replace(origin=Origin()) for record in kept.values()]
    assert results.read_table(folder / "results.csv") == written
    assert len(kept[PLAIN, 1].figures["eval/mean_ep_length"]) == 2


def test_what_made_the_results_is_kept(folder):
    _, (made,) = provenance.read(folder) or ({}, [])
    assert made.command.startswith("python -m experiments.run cartpole_basics --tiny --out")
    assert made.devices.endswith("CPU cores") and made.jax
    text = (folder / "results.md").read_text()
    assert made.told() in text and "nothing can be learnt from this" in text


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


def test_an_interrupted_program_goes_on_from_where_it_was(folder, tmp_path, monkeypatch, capsys):
    stop, began, train = signals.StopRequest(), [], population.train
    monkeypatch.setattr(signals, "listening", lambda: contextlib.nullcontext(stop))

    def interrupting(members, report, built, begun, keep):
        def tell(point):
            report(point)
            stop.signal = signal.SIGTERM if not began else None

        points = train(members, tell, built, begun, keep)
        began.append(begun and begun.cycles)
        return points

    monkeypatch.setattr(population, "train", interrupting)
    command = ["cartpole_basics", "--tiny", "--out", str(tmp_path)]
    assert run.main(command) == 128 + signal.SIGTERM
    assert "the same command goes on" in capsys.readouterr().err
    assert not (tmp_path / "runs.jsonl").exists() and not began
    began.append("again")
    stop.signal = None
    assert run.main(command) == 0
    assert began == [
        "again",
        1,
        None,
    ]  # one cycle of two was done; the second program was not begun
    assert (tmp_path / "results.csv").read_text() == (folder / "results.csv").read_text()
    assert not (tmp_path / "unfinished").exists()


def test_a_program_in_training_is_saved_every_so_often(tmp_path, monkeypatch, capsys):
    built: Any = SimpleNamespace(programs=SimpleNamespace(program=np.zeros(2)))
    monkeypatch.setattr(unfinished, "abstract_state", lambda program: {"x": program})
    state: Any = {"x": np.ones(2)}
    progress = population.Progress(state, 3, [population.Point(5, ({"y": math.nan},))])
    with unfinished.kept(tmp_path, [CONFIG], signals.StopRequest()) as begun:
        begun.keep(progress)
        assert begun.progress(built) is None  # it is not time yet
        monkeypatch.setattr(unfinished, "_EVERY", -1.0)
        begun.keep(progress)
        begun._checkpoints.wait()
        found = begun.progress(built)
        assert found and found.cycles == 3 and math.isnan(found.points[0].figures[0]["y"])
        np.testing.assert_array_equal(jax.tree.leaves(found.state), [[1.0, 1.0]])
        built.programs.program = np.zeros(3)
        assert begun.progress(built) is None
        assert "starts over: checkpoint leaf x is" in capsys.readouterr().out
        assert not list(tmp_path.glob("unfinished/*"))


def test_an_interrupted_or_changed_run_is_run_again(folder, tmp_path):
    kept = (folder / "runs.jsonl").read_text().splitlines()
    other = json.loads(kept[1])
    other["config"] = other["config"].replace('"lam": 0.95', '"lam": 0.94')
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join([kept[0], json.dumps(other), kept[2][:50]]))
    cells = load("cartpole_basics").shrunk().cells()
    assert results.kept(path, cells).keys() == {(PLAIN, 0)}


def test_a_run_is_kept_after_a_line_that_was_cut(tmp_path):
    path, cell = tmp_path / "runs.jsonl", (PLAIN, 0)
    path.write_text('{"variant": "a", "seed')
    points = [population.Point(5, ({"x": 1.0},))]
    record = results.of_member(cell, points, 0, Origin("python"))
    results.keep(path, record, CONFIG)
    expected = Record(PLAIN, 0, [5], {"x": [1.0]}, Origin("python"))
    assert results.kept(path, {cell: CONFIG}) == {cell: expected}


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
        ({"settings": {"preset": "ant"}}, "'preset' cannot be changed"),
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
    monkeypatch.setattr(population, "train", lambda members, report, *_: report(point))
    for out in (folder / "new", folder):
        assert run.main(["cartpole_basics", "--tiny", "--out", str(out)]) == 2
        text = "no 'eval/mean_rewards'. Did you mean 'eval/mean_reward'? There are: eval/"
        assert text in capsys.readouterr().err


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
        "offpolicy.normalize_obs": False,
        "task.episodic_reward": True,
        "offpolicy.rrd_bias_correction": False,
        "offpolicy.rrd_sample_size": 3,
    }
    words = shlex.split(flags(settings))
    preset = presets.get("rrd-quick")
    assert train._parse(["rrd-quick", *words]).config == changed(preset, settings)


def test_every_study_can_be_run():
    for path in (HERE / "studies").glob("*.py"):
        study = load(path.stem)
        assert study.cells() and study.shrunk().cells()
        assert len(population.groups(list(study.shrunk().cells().values()))) <= 3
