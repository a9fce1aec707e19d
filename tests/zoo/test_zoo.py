"""The zoo: every policy loads and acts, cheap ones reach the return of their card."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import __main__, completion, evaluate, export, render, train, zoo
from jaxrl.config import settings
from jaxrl.config import zoo as names
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir
from jaxrl.policies import files, load
from jaxrl.training import fit
from tests.helpers import tiny

MAX_BYTES, MAX_TOTAL = 2**20, 8 * 2**20
CHEAP = ("cartpole", "pendulum")


def _files(name):
    return [path for path in (names.FOLDER / name).rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", zoo.names())
def test_policy_loads_and_gives_finite_actions(name):
    policy = jaxrl.load_policy(f"zoo:{name}")
    assert {leaf.dtype for leaf in jax.tree.leaves(policy.params.actor)} == {np.dtype(np.float32)}
    obs = jax.tree.map(lambda s: np.ones((2, *s.shape), s.dtype), policy.spec.obs)
    action, _ = policy.step(obs, policy.initial_carry(2))
    assert action.shape == ((2,) if policy.spec.action.discrete else (2, policy.spec.action.size))
    assert np.isfinite(action).all()


@pytest.mark.parametrize("name", zoo.names())
def test_card_is_complete(name):
    card, info = zoo.card(name), jaxrl.load_policy(f"zoo:{name}").info
    assert card.about and card.trained_on and card.evaluated_on
    assert re.fullmatch("[0-9a-f]{40}", card.commit)
    assert card.command.startswith("jaxrl train ")
    assert card.env_steps == info["env_steps"] and card.episodes >= 30
    assert np.isfinite([card.mean_return, card.std_return, card.float32_return]).all()
    stored = files.read(load.find(Path(f"zoo:{name}"))).arrays
    dtypes = {str(head.dtype) for leaf, head in stored.items() if leaf.startswith("actor/")}
    assert dtypes == {card.precision}


@pytest.mark.parametrize("name", zoo.names())
def test_settings_are_those_of_the_command_without_paths(name):
    config = run_dir.read_config(names.FOLDER / name)
    wanted = train._parse(zoo.card(name).command.split()[2:]).config
    logs = ("log.", "checkpoint.")
    same = [path for path in settings.values(wanted) if not path.startswith(logs)]
    differing = {
        path: (settings.get(config, path), settings.get(wanted, path))
        for path in same
        if settings.get(config, path) != settings.get(wanted, path)
    }
    assert not differing
    for path in _files(name):
        assert not re.search(rb"/(tmp|home|work|root)/", path.read_bytes()), path


def test_files_are_small_and_known():
    sizes = {name: sum(path.stat().st_size for path in _files(name)) for name in zoo.names()}
    assert max(sizes.values()) <= MAX_BYTES and sum(sizes.values()) <= MAX_TOTAL
    wanted = {"card.json", "config.json", "best.npz"}
    assert all({path.name for path in _files(name)} == wanted for name in sizes)
    assert {
        *CHEAP,
        "quickstart",
        "ant",
        "humanoid",
        "halfcheetah",
        "arena",
        "pick-place-easy",
    } <= set(sizes)


@pytest.mark.parametrize("name", CHEAP)
def test_return_of_the_card_holds(name):
    card, config = zoo.card(name), run_dir.read_config(names.FOLDER / name)
    played = load.run_episodes(jaxrl.load_policy(f"zoo:{name}"), config, episodes=64, seed=7)
    error = card.std_return * (1 / 64 + 1 / card.episodes) ** 0.5
    assert np.mean(played.returns) >= card.mean_return - 4 * error - 1e-3


def test_unknown_names_give_the_nearest(capsys):
    with pytest.raises(UserError, match="The zoo has no policy 'atn'. Did you mean 'zoo:ant'?"):
        jaxrl.load_policy("zoo:atn")
    with pytest.raises(UserError, match="The zoo has no policy '../zoo/ant'"):
        names.resolve(Path("zoo:../zoo/ant"))
    assert zoo.main(["watch", "pendulm"]) == 2
    assert "Did you mean 'zoo:pendulum'?" in capsys.readouterr().err
    assert zoo.main(["watch"]) == 2 and "needs a name: one of ant," in capsys.readouterr().err
    assert zoo.main(["list", "ant"]) == 2 and "zoo watch ant" in capsys.readouterr().err


def test_figures_have_two_digits_of_the_deviation():
    card = zoo.card("cartpole")
    values = [(9458.23, 36.6), (11.694, 2.223), (-0.5, 0.0123), (1000.0, 0.0)]
    shown = [replace(card, mean_return=mean, std_return=std).figures for mean, std in values]
    assert shown == ["9,458 ± 37", "11.7 ± 2.2", "-0.500 ± 0.012", "1,000 ± 0"]


def test_list_has_every_policy_with_its_figures(capsys):
    assert __main__.main(["zoo"]) == 0
    text = capsys.readouterr().out
    for name in zoo.names():
        card = zoo.card(name)
        assert f"{name:16} {card.about}" in text and f"{card.env_steps:,} steps" in text
        assert card.command in text and card.commit[:7] in text and card.figures in text


@pytest.mark.parametrize("display, flags, opens", [("", [], 0), (":0", [], 1), (":0", ["no"], 0)])
def test_watch_writes_a_page_and_opens_it(tmp_path, monkeypatch, capsys, display, flags, opens):
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(zoo.webbrowser, "open", opened.append)
    monkeypatch.setattr(zoo.sys, "platform", "linux")
    assert zoo.main(["watch", "cartpole", *[f"--{flag}-open" for flag in flags]]) == 0
    page = tmp_path / "runs" / "zoo-cartpole" / "episode.html"
    assert page.is_file() and "written to runs/zoo-cartpole/episode.html" in capsys.readouterr().out
    assert opened == [page.as_uri()] * opens


def test_watch_refuses_other_files(capsys):
    assert zoo.main(["watch", "cartpole", "--out", "x.gif"]) == 2
    assert "must end in .html" in capsys.readouterr().err


def test_commands_take_names_and_write_outside_of_the_package(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in _files("pendulum")}
    assert evaluate.main(["zoo:pendulum", "--episodes", "3"]) == 0
    assert render.main(["zoo:pendulum", "--out", "it.gif", "--seconds", "0.5"]) == 0
    assert export.main(["zoo:pendulum"]) == 0
    out = tmp_path / "runs" / "zoo-pendulum"
    assert (out / "evaluation-best.json").is_file() and (out / "exported/policy.npz").is_file()
    assert Path("it.gif").is_file()
    assert before == {path: path.stat().st_mtime_ns for path in _files("pendulum")}
    capsys.readouterr()
    assert render.main(["zoo:pendulum", "--follow"]) == 2
    assert "leave it out" in capsys.readouterr().err


def test_runs_start_from_the_zoo_but_do_not_continue_it(tmp_path, capsys):
    config = run_dir.read_config(names.FOLDER / "cartpole")
    layers = ("--network.hidden", *map(str, config.network.hidden))
    still = ("--ppo.learning-rate", "1e-9", "--epochs", "1")
    run = tiny.run(tmp_path / "run", "--init-from", "zoo:cartpole", *layers, *still)
    assert "starting from the policy" in capsys.readouterr().out
    (ours, theirs) = (jaxrl.load_policy(path).params.actor for path in (run, "zoo:cartpole"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), ours, theirs)
    with pytest.raises(UserError, match="--init-from zoo:cartpole"):
        fit.resume("zoo:cartpole")


def test_names_are_completed():
    assert completion.candidates(["zoo", "w"]) == ["watch"]
    assert completion.candidates(["zoo", "watch", "pend"]) == ["pendulum"]
    assert completion.candidates(["zoo", "watch", "ant", ""]) == []
