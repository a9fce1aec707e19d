"""Studies: grouping into programs, continuing after interruption, and output."""

import csv
import errno
import json
import math
import os
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jaxrl import train
from jaxrl.checkpoint import array_io
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.checkpoint.snapshot import CheckpointError
from jaxrl.config import presets
from jaxrl.config.overrides import changed
from jaxrl.errors import UserError
from jaxrl.studies import provenance, results, run, smoke_configs, study, training
from jaxrl.studies.provenance import Provenance
from jaxrl.studies.results import Record
from jaxrl.studies.study import BASE, Study, find, flags, grid, load, results_folder
from jaxrl.training import population
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

CONFIG = train._parse([*tiny.FLAGS, "--epochs", "1", "--cycles", "1"]).config


def test_settings_are_changed_by_dotted_names():
    config = changed(presets.get("ant"), {"ppo.lam": 0.5, "num_envs": 64})
    assert (config.ppo.lam, config.num_envs) == (0.5, 64)
    with pytest.raises(UserError, match="no setting 'ppo.lan'. Did you mean 'ppo.lam'"):
        changed(presets.get("ant"), {"ppo.lan": 0.5})


def test_grid():
    assert grid({"ppo.lam": (0, 1), "num_envs": (8,)}) == {
        "lam 0, num_envs 8": {"ppo.lam": 0, "num_envs": 8},
        "lam 1, num_envs 8": {"ppo.lam": 1, "num_envs": 8},
    }


def test_static_settings_split_runs_into_programs():
    variants = [
        {},
        {"ppo.lam": 0.5},
        {"seed": 3},
        {"ppo.normalize_obs": False},
        {"ppo.bound_coef": 0.1},  # 0 elsewhere, where this loss term is left out
        {"ppo.bound_coef": 0.2},
        {"ppo.lam": 0.0, "ppo.bootstrap_truncated": False},  # traced settings
    ]
    configs = [changed(CONFIG, changes) for changes in variants]
    assert population.groups(configs) == [[0, 1, 2, 6], [3], [4, 5]]
    with pytest.raises(UserError, match="traced settings only"):
        population.build(configs)


def test_smoke_tests_are_small_whatever_the_study_sets():
    for preset, small in (("cartpole", smoke_configs.PPO), ("dqn-cartpole", smoke_configs.REPLAY)):
        chosen = Study(preset, {}, 1, settings={"total_steps": 2_000_000}, smoke=small)
        (config,) = chosen.smoke_test().cells().values()
        assert config.total_iterations * config.steps_per_iteration < 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The output folder of a small study."""
    out = tmp_path_factory.mktemp("study")
    assert run.main(["cartpole_basics", "--smoke", "--out", str(out)]) == 0
    return out


def test_study_writes_a_table_and_plots(folder):
    cells = load("cartpole_basics").smoke_test().cells()
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["variant"], int(row["seed"])) for row in rows} == set(cells)
    assert len(rows) == 2 * len(cells)  # evaluations
    text = (folder / "results.md").read_text()
    assert BASE in text and "`ppo.lam = 0.0`" in text
    for name in ("curves.png", "finals.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_table_contains_all_finished_runs(folder):
    cells = load("cartpole_basics").smoke_test().cells()
    finished = results.finished_runs(folder, cells)
    written = [record._replace(provenance=Provenance()) for record in finished.values()]
    assert results.read_table(folder / "results.csv") == written
    assert len(finished[BASE, 1].metrics["eval/mean_ep_length"]) == 2


def test_provenance_of_results_is_stored(folder):
    _, (made,) = provenance.read(folder) or ({}, [])
    assert made.command.startswith("jaxrl study cartpole_basics --smoke --out")
    assert made.devices.endswith("CPU cores") and made.jax
    text = (folder / "results.md").read_text()
    assert made.describe() in text and "these are not results" in text


def test_programs_are_started_ahead_of_use():
    order = []
    made = run._prefetch("abc", lambda item: order.append(f"make {item}"), ahead=1)
    for item, _ in made:
        order.append(f"use {item}")
    assert order == ["make a", "make b", "use a", "make c", "use b", "use c"]


def test_settings_from_the_command_line(tmp_path, monkeypatch):
    found = {}
    monkeypatch.setattr(run, "execute", lambda name, study, *_, **__: found.update({name: study}))
    given = ["--set", "task.episode_length", "30", "--set", "task.randomize", "a:b"]
    assert run.main(["cartpole_basics", "--out", str(tmp_path), *given]) == 0
    config = found["cartpole_basics"].cells()["lambda 1", 2]
    assert (config.task.episode_length, config.task.randomize, config.seed) == (30, "a:b", 2)


def test_values_of_the_wrong_type_are_named():
    with pytest.raises(UserError, match="'ppo.lam' has the unusable value 'much'"):
        Study("cartpole", {"odd": {"ppo.lam": "much"}}).cells()


def test_finished_runs_are_not_run_again(folder, monkeypatch, capsys):
    def refuse(*_):
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(training, "train", refuse)
    assert run.main(["cartpole_basics", "--smoke", "--out", str(folder)]) == 0
    assert "6 of 6 runs are finished already" in capsys.readouterr().out


def test_interrupted_program_continues_from_its_checkpoint(folder, tmp_path, interruption, capsys):
    stop, evaluated = interruption
    command = ["cartpole_basics", "--smoke", "--out", str(tmp_path)]
    assert run.main(command) == 128 + signal.SIGTERM
    assert "The same command continues" in capsys.readouterr().err
    assert not (tmp_path / "runs.jsonl").exists() and evaluated == [1]
    stop.signal = None
    assert run.main(command) == 0
    assert evaluated == [
        1,
        2,
        1,
        2,
    ]  # the first program had one cycle left; the second had not begun
    assert (tmp_path / "results.csv").read_text() == (folder / "results.csv").read_text()
    assert not list(tmp_path.glob("runs/*/checkpoints"))


def test_incompatible_checkpoint_starts_over(tmp_path, monkeypatch, capsys):
    calls = []

    def fit_or_resume(program, folder, callbacks, executor, exchange):
        calls.append(folder)
        folder.mkdir()
        if len(calls) == 1:
            raise CheckpointError("checkpoint leaf x is float32[2], not float32[3]")
        return SimpleNamespace(stopped_by=None)

    monkeypatch.setattr(training, "fit_or_resume", fit_or_resume)
    training._fit_or_restart(training.Started(None, None, []), tmp_path / "run", [])
    assert calls == [tmp_path / "run"] * 2
    assert "starting from scratch: checkpoint leaf x is" in capsys.readouterr().out
    assert (tmp_path / "run.unusable-1").is_dir()  # what cannot be read is left to a person


def test_full_disk_leaves_a_run_as_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def fit_or_resume(*_, **__):
        with CheckpointManager(folder) as checkpoints:
            checkpoints.save(1, {"x": np.zeros(2)}, {})
            checkpoints.wait()
            monkeypatch.setattr(array_io, "write_arrays", full)
            checkpoints.save(2, {"x": np.ones(2)}, {}, block=True)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(training, "fit_or_resume", fit_or_resume)
    with pytest.raises(CheckpointError, match="No space left on device"):
        training._fit_or_restart(training.Started(None, None, []), folder, [])
    assert [path.name for path in folder.iterdir()] == ["1"]
    assert list(tmp_path.iterdir()) == [folder]


def test_runs_with_equal_settings_are_trained_once(monkeypatch):
    monkeypatch.setattr(
        population, "build", lambda members: SimpleNamespace(members=members, start=list)
    )
    other = changed(CONFIG, {"seed": 1})
    started = training.start([CONFIG, other, CONFIG])
    assert [member.seed for member in started.program.members] == [CONFIG.seed, 1]
    assert started.indices == [0, 1, 0]


def test_missing_evaluations_of_a_diverged_run_are_nan(tmp_path):
    config = replace(CONFIG, epochs=3, cycles=2)
    steps = config.iterations * config.steps_per_iteration
    rows = [
        {"step": steps, "time/fps": 1.0},
        {"step": 2 * steps, "eval/mean_reward": 5.0, "eval/best_mean_reward": 5.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    curve = training.read_curve(config, tmp_path)
    assert curve.steps == [2 * steps, 4 * steps, 6 * steps]
    assert curve.metrics.keys() == {"eval/mean_reward"}
    assert curve.metrics["eval/mean_reward"] == pytest.approx([5, math.nan, math.nan], nan_ok=True)


def test_incomplete_or_changed_runs_are_repeated(folder, tmp_path):
    lines = (folder / "runs.jsonl").read_text().splitlines()
    other = json.loads(lines[1])
    other["config"] = other["config"].replace('"lam": 0.95', '"lam": 0.94')
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join([lines[0], json.dumps(other), lines[2][:50]]))
    cells = load("cartpole_basics").smoke_test().cells()
    assert results.finished_runs(tmp_path, cells).keys() == {(BASE, 0)}


def test_record_is_appended_after_a_truncated_line(tmp_path):
    path, cell = tmp_path / "runs.jsonl", (BASE, 0)
    path.write_text('{"variant": "a", "seed')
    record = Record(*cell, [5], {"x": [1.0]}, Provenance("python"))
    results.append(path, record, CONFIG)
    assert results.finished_runs(tmp_path, {cell: CONFIG}) == {cell: record}


def test_smoke_test_has_default_settings():
    for name, steps in (("cartpole", 64), ("reppo-pendulum", 64), ("pqn-cartpole", 64)):
        small = Study(name, {"other": {"num_envs": 3}}).smoke_test().cells()
        assert {config.steps_per_iteration for config in small.values()} == {steps}
    small = Study("rrd-quick", {"other": {"num_envs": 3}}).smoke_test().cells()
    assert {config.num_envs for config in small.values()} == {4}


def test_unknown_study_suggests_the_closest_name(capsys):
    assert run.main(["cartpole_basic"]) == 2
    assert "Did you mean 'cartpole_basics'" in capsys.readouterr().err


def test_file_without_a_study_is_named(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("LAMBDA = 1\n")
    assert run.main([str(tmp_path / "mine.py")]) == 2
    assert "mine.py' has no study: write STUDY = Study(" in capsys.readouterr().err
    assert run.main([str(tmp_path / "yours.py")]) == 2
    assert "yours.py'" in capsys.readouterr().err


def test_own_study_is_found_by_path_and_by_name(tmp_path, monkeypatch):
    """Results are written beside the file, or beside its folder `studies`."""
    mine = "from jaxrl.studies import Study\n\nSTUDY = Study('cartpole', {'a': {'ppo.lam': 1.0}})\n"
    (tmp_path / "studies").mkdir()
    for folder in (tmp_path, tmp_path / "studies"):
        (folder / "mine.py").write_text(mine)
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "studies/mine.py", "mine"):
        assert load(name).variants == {"a": {"ppo.lam": 1.0}}
        assert results_folder(name).absolute() == tmp_path / "results" / "mine"
    monkeypatch.chdir(tmp_path / "studies")
    assert load("mine") and find("mine") == tmp_path / "studies" / "mine.py"


@pytest.mark.parametrize(
    "given, text",
    [
        ({"seeds": 0}, "`seeds` must be at least 1, not 0"),
        ({"variants": {BASE: {"ppo.lam": 0.5}}}, "rename yours"),
        ({"variants": {"other": {"seed": 7}}}, "'seed' cannot be set"),
        ({"settings": {"seed": 7}}, "'seed' cannot be set"),
        ({"settings": {"preset": "ant"}}, "'preset' cannot be changed"),
    ],
)
def test_ambiguous_study_settings_are_refused(given, text):
    with pytest.raises(UserError, match=text):
        Study(**{"preset": "cartpole", "variants": {}} | given)


def test_gymnasium_environments_are_refused():
    with pytest.raises(UserError, match="jaxrl.train gym-cartpole --seed N"):
        Study("gym-cartpole", {}).cells()


def test_at_once_must_be_at_least_one(capsys):
    assert run.main(["cartpole_basics", "--at-once", "0"]) == 2
    assert "--at-once must be at least 1, not 0" in capsys.readouterr().err


def test_misspelled_metric_suggests_the_closest_name(folder, monkeypatch, capsys):
    """At the first evaluation, and for runs that were finished before."""
    wrong = replace(load("cartpole_basics"), metric="eval/mean_rewards")
    monkeypatch.setattr(study, "load", lambda name: wrong)
    monkeypatch.setattr(training, "start", lambda members: None)
    monkeypatch.setattr(training, "train", lambda *given: given[2](["eval/mean_reward"]))
    for out in (folder / "new", folder):
        assert run.main(["cartpole_basics", "--smoke", "--out", str(out)]) == 2
        text = "no 'eval/mean_rewards'. Did you mean 'eval/mean_reward'? There are: eval/"
        assert text in capsys.readouterr().err


def test_interruption_says_how_to_continue(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "execute", interrupted)
    assert run.main(["cartpole_basics", "--out", str(tmp_path)]) == 130
    assert "The same command continues" in capsys.readouterr().err


def test_flags_round_trip_through_the_command_line():
    settings = {
        "task.randomize": "a:b c",
        "total_steps": None,
        "network.hidden": (8, 9),
        "offpolicy.normalize_obs": False,
        "task.episodic_reward": True,
        "rrd.bias_correction": False,
        "rrd.sample_size": 3,
    }
    words = shlex.split(flags(settings))
    preset = presets.get("rrd-quick")
    assert train._parse(["rrd-quick", *words]).config == changed(preset, settings)


def test_every_study_is_valid():
    for path in (Path(__file__).parents[2] / "experiments" / "studies").glob("[!_]*.py"):
        chosen = load(str(path))
        assert chosen.cells() and chosen.smoke_test().cells()
        assert len(population.groups(list(chosen.smoke_test().cells().values()))) <= 3
