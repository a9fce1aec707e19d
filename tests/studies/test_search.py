"""Hyper-parameter search: trials share programs, are stored, and continue after interruption."""

import json
import sys

import numpy as np
import pytest

from jaxrl import train
from jaxrl.config.overrides import changed
from jaxrl.errors import UserError
from jaxrl.studies import search, study, training
from jaxrl.studies.study import Between, Study

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


def fake_curves(members):
    """Return fake curves: best at learning rate 0.01, and one point more for 8 update epochs."""
    scores = [-abs(m.ppo.learning_rate - 0.01) + (m.ppo.update_epochs == 8) for m in members]
    return [training.Curve([1], {"eval/mean_reward": [score]}) for score in scores]


@pytest.fixture
def trained(monkeypatch):
    """The members of each program that would have been trained."""
    groups = []

    def train(members, folder, check):
        groups.append(members)
        check(["eval/mean_reward"])
        return fake_curves(members)

    monkeypatch.setattr(training, "start", list)
    monkeypatch.setattr(training, "train", train)
    return groups


def command(out, trials, *more):
    return search.main(["cartpole_basics", "--trials", str(trials), "--out", str(out), *more])


def test_search_finds_good_settings_and_lists_them_first(trained, tmp_path):
    assert command(tmp_path, 40, "--at-once", "8", "--seeds", "2") == 0
    assert sum(map(len, trained)) == 2 * 40
    for members in trained:  # one program each
        assert len({(m.ppo.update_epochs, m.ppo.clip == 0) for m in members}) == 1
        assert {m.seed for m in members} == {0, 1}
    runs = [member for members in trained for member in members]
    good = [member.ppo.update_epochs == 8 for member in runs]
    assert np.mean(good[40:]) > max(
        np.mean(good[:20]), 0.6
    )  # the sampler has learned where to look
    lines = (tmp_path / "search.md").read_text().splitlines()
    assert "40 trials of the preset `cartpole`" in lines[2]
    best = lines[6].split(" | ")
    assert best[-1] == "8 |" and abs(float(best[1]) - 0.01) < 5e-3
    assert f"--ppo.learning-rate {best[1]}" in lines[2]


def test_interrupted_search_continues(trained, tmp_path, monkeypatch, capsys):
    assert command(tmp_path, 4, "--at-once", "4") == 0
    before = {m.ppo.learning_rate for members in trained for m in members}
    del trained[:]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "train", interrupted)
        assert command(tmp_path, 6) == 130
    assert "The same command continues" in capsys.readouterr().err
    assert command(tmp_path, 6) == 0
    assert (
        sum(map(len, trained)) == 2
    )  # four were finished; two were interrupted and suggested again
    after = {m.ppo.learning_rate for members in trained for m in members}
    assert len(before | after) == 6  # nothing is tried twice
    assert command(tmp_path, 6) == 0
    assert sum(map(len, trained)) == 2
    assert command(tmp_path, 6, "--smoke") == 0
    assert sum(map(len, trained)) == 2 + 6  # other settings: another search
    for line in (tmp_path / "search.jsonl").read_text().splitlines():
        json.loads(line)


def test_invalid_settings_are_listed_without_a_score(trained, tmp_path):
    chosen = Study("cartpole", {}, seeds=1, search={"ppo.num_minibatches": (8, 7)})
    search.execute("x", chosen, tmp_path, trials=8, at_once=4)
    assert {m.ppo.num_minibatches for members in trained for m in members} == {8}
    rows = (tmp_path / "search.md").read_text().splitlines()[6:]
    assert {tuple(row.split(" | ")) for row in rows} >= {("| -", "7 |")}
    assert rows[0].endswith("| 8 |")


def test_no_best_trial_when_all_are_invalid(trained, tmp_path):
    chosen = Study("cartpole", {}, seeds=1, search={"ppo.num_minibatches": (7,)})
    search.execute("x", chosen, tmp_path, trials=1, at_once=1)
    assert "None of them finished." in (tmp_path / "search.md").read_text()


def test_best_command_includes_common_settings(trained, tmp_path):
    settings = {"ppo.normalize_obs": False, "num_envs": 64}
    ranges = {"ppo.learning_rate": Between(1e-4, 1e-2), "ppo.bootstrap_truncated": (False,)}
    chosen = Study("cartpole", {}, 1, settings, search=ranges)
    search.execute("x", chosen, tmp_path, trials=1, at_once=1)
    words = (tmp_path / "search.md").read_text().split("`")[-2].split()
    assert words[:4] == ["python", "-m", "jaxrl.train", "cartpole"]
    found, (asked,) = train._parse(words[3:]).config, trained[0]
    rate = found.ppo.learning_rate
    assert rate == pytest.approx(asked.ppo.learning_rate, rel=1e-3)
    assert found == changed(asked, {"ppo.learning_rate": rate})


@pytest.mark.parametrize("flag", ["--trials", "--at-once", "--seeds"])
def test_counts_must_be_at_least_one(flag, capsys, tmp_path):
    assert search.main(["cartpole_basics", "--out", str(tmp_path), flag, "0"]) == 2
    assert f"{flag} must be at least 1, not 0" in capsys.readouterr().err


def test_suggested_settings_are_trained(tmp_path, monkeypatch):
    """With real programs: as many very small trials as a study of other tests has runs."""
    rates, start = [], training.start

    def recorded(members):
        rates.extend(member.ppo.learning_rate for member in members)
        return start(members)

    monkeypatch.setattr(training, "start", recorded)
    small = study.load("cartpole_basics").smoke_test()
    ranges = {"ppo.learning_rate": Between(1e-4, 1e-2, log=True)}
    chosen = Study(small.preset, {}, 1, smoke=small.smoke, is_smoke_test=True, search=ranges)
    search.execute("y", chosen, tmp_path, trials=4, at_once=4)
    text = (tmp_path / "search.md").read_text()
    rows = [[float(x) for x in line.strip("| ").split(" | ")] for line in text.splitlines()[6:10]]
    assert "4 trials" in text and np.isfinite(rows).all()
    assert sorted(row[1] for row in rows) == pytest.approx(sorted(rates), rel=1e-2)


def test_missing_optuna_names_the_extra(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert command(tmp_path, 1) == 2
    assert "pip install -e '.[search]'" in capsys.readouterr().err


def test_study_without_search_ranges_is_refused(capsys, tmp_path):
    assert search.main(["minibatches", "--out", str(tmp_path)]) == 2
    assert "has no `search`" in capsys.readouterr().err


def test_integer_settings_are_sampled_as_integers(trained, tmp_path):
    ranges = {"ppo.update_epochs": Between(1, 9), "ppo.learning_rate": Between(1e-4, 1, log=True)}
    search.execute("s", Study("cartpole", {}, seeds=1, search=ranges), tmp_path, 6, 6)
    epochs = {m.ppo.update_epochs for members in trained for m in members}
    assert len(epochs) > 1 and epochs <= set(range(1, 10))
    assert {type(number) for number in epochs} == {int}


@pytest.mark.parametrize(
    "choices, text",
    [
        (Between(1.0, 0.9), "low < high must hold for 'ppo.gamma'"),
        (Between(0.0, 0.9, log=True), "0 < low < high must hold"),
        ((), "a Between or a tuple"),
        (0.9, "a Between or a tuple"),
        ((0.9, "a"), "'ppo.gamma' has the unusable value 'a'"),
    ],
)
def test_invalid_search_ranges_are_named(tmp_path, choices, text):
    with pytest.raises(UserError, match=text):
        search.execute(
            "s", Study("cartpole", {}, search={"ppo.gamma": choices}), tmp_path / "no", 1, 1
        )
