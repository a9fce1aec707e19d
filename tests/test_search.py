"""Searching settings: several trials in one program, kept, and taken up again."""

import json
import sys

import numpy as np
import pytest

from experiments import search, study
from experiments.study import Between, Study
from jaxrl.runtime import population


def scored(members, *_):
    """Stand in for training: the best learning rate is 0.01, and 8 passes are worth one more."""
    figures = [
        {"eval/mean_reward": -abs(m.ppo.learning_rate - 0.01) + (m.ppo.update_epochs == 8)}
        for m in members
    ]
    return [population.Point(1, tuple(figures))]


@pytest.fixture
def trained(monkeypatch):
    """What was trained together."""
    groups = []

    def train(members):
        groups.append(members)
        return scored(members)

    monkeypatch.setattr(population, "train", train)
    return groups


def command(out, trials, *more):
    return search.main(["cartpole_basics", "--trials", str(trials), "--out", str(out), *more])


def test_good_settings_are_found_and_come_first(trained, tmp_path):
    assert command(tmp_path, 40, "--at-once", "8", "--seeds", "2") == 0
    assert sum(map(len, trained)) == 2 * 40
    for members in trained:  # one program each
        assert len({(m.ppo.update_epochs, m.ppo.clip == 0) for m in members}) == 1
        assert {m.seed for m in members} == {0, 1}
    runs = [member for members in trained for member in members]
    good = [member.ppo.update_epochs == 8 for member in runs]
    assert np.mean(good[40:]) > max(np.mean(good[:20]), 0.6)  # it has learnt where to look
    lines = (tmp_path / "search.md").read_text().splitlines()
    assert "40 trials of the preset `cartpole`" in lines[2]
    best = lines[6].split(" | ")
    assert best[-1] == "8 |" and abs(float(best[1]) - 0.01) < 5e-3
    assert f"--ppo.learning-rate {best[1]}" in lines[2]


def test_an_interrupted_search_goes_on(trained, tmp_path, monkeypatch):
    assert command(tmp_path, 4, "--at-once", "4") == 0
    before = {m.ppo.learning_rate for members in trained for m in members}
    del trained[:]

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(population, "train", interrupted)
        command(tmp_path, 6)
    assert command(tmp_path, 6) == 0
    assert sum(map(len, trained)) == 2  # four were finished, two were given up and asked anew
    after = {m.ppo.learning_rate for members in trained for m in members}
    assert len(before | after) == 6  # nothing is tried twice
    assert command(tmp_path, 6) == 0
    assert sum(map(len, trained)) == 2
    assert command(tmp_path, 6, "--tiny") == 0
    assert sum(map(len, trained)) == 2 + 6  # other settings: another search
    for line in (tmp_path / "search.jsonl").read_text().splitlines():
        json.loads(line)


def test_settings_that_cannot_be_run_are_told_apart(trained, tmp_path):
    chosen = Study("cartpole", {}, seeds=1, search={"ppo.num_minibatches": (8, 7)})
    search.execute("x", chosen, tmp_path, trials=8, at_once=4)
    assert {m.ppo.num_minibatches for members in trained for m in members} == {8}
    rows = (tmp_path / "search.md").read_text().splitlines()[6:]
    assert {tuple(row.split(" | ")) for row in rows} >= {("| -", "7 |")}
    assert rows[0].endswith("| 8 |")


def test_what_is_trained_is_what_was_asked_for(tmp_path, monkeypatch):
    """With real programs: two trials of next to nothing."""
    rates, train = [], population.train

    def noted(members):
        rates.extend(member.ppo.learning_rate for member in members)
        return train(members)

    monkeypatch.setattr(population, "train", noted)
    small = study.load("cartpole_basics").shrunk()
    ranges = {"ppo.learning_rate": Between(1e-4, 1e-2, log=True)}
    chosen = Study(small.preset, {}, 1, tiny=small.tiny, is_shrunk=True, search=ranges)
    search.execute("y", chosen, tmp_path, trials=2, at_once=2)
    text = (tmp_path / "search.md").read_text()
    rows = [[float(x) for x in line.strip("| ").split(" | ")] for line in text.splitlines()[6:8]]
    assert "2 trials" in text and np.isfinite(rows).all()
    assert sorted(row[1] for row in rows) == pytest.approx(sorted(rates), rel=1e-2)


def test_a_missing_optuna_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert command(tmp_path, 1) == 2
    assert "pip install 'jaxrl[search]'" in capsys.readouterr().err


def test_studies_without_ranges_say_so(capsys, tmp_path):
    assert search.main(["minibatches", "--out", str(tmp_path)]) == 2
    assert "names nothing to search" in capsys.readouterr().err
