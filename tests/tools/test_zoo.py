"""The maintainers' command of the zoo: it adds policies, and makes the page that shows them."""

import importlib.util
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.config import presets
from jaxrl.config import zoo as names
from jaxrl.errors import UserError
from jaxrl.policies import files

TOOL = Path(__file__).parents[2] / "tools" / "zoo.py"
RUN = names.FOLDER / "cartpole"
GIVEN = ("--command", "jaxrl train cartpole", "--commit", "0" * 40, "--machine", "1 × test")


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("zoo_tool", TOOL)
    assert spec and spec.loader
    module = sys.modules["zoo_tool"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["zoo_tool"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "FOLDER", tmp_path / "zoo")
    return tmp_path / "zoo"


def test_a_run_is_added_in_one_line(tool, folder, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    settings = json.loads((run / "config.json").read_text()) | {"run_dir": str(run)}
    (run / "config.json").write_text(json.dumps(settings))
    command = "python -m jaxrl.train cartpole --run-dir /tmp/x --seed 0\n"
    (run / "command.txt").write_text(command)
    recorded = {"git": {"commit": "1" * 40}, "devices": ["gpu: Some GPU"]}
    (run / "provenance.json").write_text(json.dumps(recorded))
    words = ["add", str(run), "copy", "--about", "a pole", "--episodes", "4"]
    assert tool.main(words) == 0
    assert "zoo:copy: 500 ± 0 with float16" in capsys.readouterr().out
    card = names.card("copy")
    assert (card.command, card.commit) == ("jaxrl train cartpole --seed 0", "1" * 40)
    assert (card.trained_on, card.episodes, card.about) == ("1 × Some GPU", 4, "a pole")
    assert str(tmp_path) not in (folder / "copy" / "config.json").read_text()
    assert jaxrl.load_policy("zoo:copy").info["env"] == "cartpole"


def test_weights_are_stored_in_half_precision_and_statistics_are_not(tool):
    trained = jaxrl.load_policy(RUN).params
    rounded = tool.round_weights(trained)
    assert {leaf.dtype for leaf in jax.tree.leaves(rounded.actor)} == {np.dtype(np.float16)}
    assert rounded.obs_stats is trained.obs_stats


def test_half_precision_must_not_cost_return(tool):
    returns = np.array([10.0, 11.0, 9.0, 10.0])
    assert tool.loses_nothing(returns, returns - 0.1)
    assert tool.loses_nothing(returns, returns + 5)
    assert not tool.loses_nothing(returns, returns - 5)
    assert not tool.loses_nothing(returns, np.full(4, np.nan))
    assert tool.loses_nothing(np.ones(4), np.ones(4))


def test_weights_stay_in_float32_where_rounding_costs_return(tool, folder, monkeypatch):
    monkeypatch.setattr(tool, "loses_nothing", lambda before, after: False)
    words = ["add", str(RUN), "exact", "--about", "x", "--episodes", "2", *GIVEN]
    assert tool.main(words) == 0
    assert names.card("exact").precision == "float32"
    stored = files.read(folder / "exact" / "policies" / "best.npz").arrays
    assert {str(head.dtype) for head in stored.values()} == {"float32"}


def test_runs_that_need_more_than_the_package_are_refused(tool):
    config = presets.get("cartpole")
    own = replace(config, env="module:Class")
    clips = replace(config, motion=replace(config.motion, clips=Path("walk.txt")))
    for wrong in (own, clips):
        with pytest.raises(UserError, match="nothing but the package"):
            tool.without_paths(wrong)


def test_wrong_names_missing_records_and_large_files_are_refused(tool, folder, monkeypatch, capsys):
    words = ["add", str(RUN), "Ant 2", "--about", "x", *GIVEN]
    assert tool.main(words) == 2 and "is no name" in capsys.readouterr().err
    assert tool.main(["add", str(RUN), "copy", "--about", "x"]) == 2
    assert "give --command" in capsys.readouterr().err
    shutil.copytree(RUN, folder / "copy")
    monkeypatch.setattr(tool, "MAX_BYTES", 100)
    with pytest.raises(UserError, match="train a smaller network"):
        tool.check_sizes()


def test_gallery_has_every_policy_and_is_small(tool):
    assert tool.table() in (TOOL.parents[1] / "docs" / "gallery.md").read_text()
    page = (TOOL.parents[1] / "docs" / "zoo.html").read_text()
    assert len(page) < 4_000_000
    for name in names.names():
        assert f"<h2>{name}</h2>" in page and names.card(name).command in page


def test_gallery_shows_what_the_zoo_has(tool, folder, tmp_path, capsys):
    shutil.copytree(RUN, folder / "cartpole")
    out, text = tmp_path / "gallery.html", tmp_path / "gallery.md"
    first, *_ = tool.table().splitlines()
    text.write_text(f"# Zoo\n\n{first}\n|---|\n| an old row |\n\nMore.\n")
    words = ["gallery", "--out", str(out), "--page", str(text), "--seconds", "0.5"]
    assert tool.main(words) == 0
    assert text.read_text() == f"# Zoo\n\n{tool.table()}\n\nMore.\n"
    assert f"written to {out}" in capsys.readouterr().out
    page = out.read_text()
    assert "<h2>cartpole</h2>" in page and page.count("<figure>") == 1
    assert "return 500 ± 0" in page and "0.23 M steps on 2 CPU cores" in page
