"""Report pages: content of single runs and comparisons, and HTML escaping."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from jaxrl import report
from jaxrl.config import PPOConfig, presets
from jaxrl.reports import load_runs, metric_charts, pages, resources
from jaxrl.training import finalize
from tests.helpers import run_folders as folders


def _page(folder):
    return pages.run_page(load_runs.read(folder))


def _section(page, title):
    """Return the text of a section, without tags."""
    (found,) = re.findall(rf"<h2>{title}</h2>(.*?)(?=<details open|<script>)", page, re.S)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found)))


def _png(path):
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with evaluations, plots and videos."""
    config = replace(folders.CARTPOLE, seed=4, num_envs=64, ppo=PPOConfig(gamma=0.9))
    folder = folders.make(tmp_path_factory.mktemp("pages") / "run", config=config)
    found = {"policy": "best.npz", "episodes": 9, "mean_reward": 77.5, "returns": [1.0]}
    found |= {"confidence": {"mean_reward": [70.25, 80.5]}, "failures": []}
    found |= {"by_outcome": {"timed_out": {"failed": 0.125, "succeeded": None}}}
    (folder / "evaluation-best.json").write_text(json.dumps(found))
    (folder / "evaluation-broken.json").write_text("[")
    (folder / "evaluation-best.tsv").write_text(
        "name\tsuccess\tmpjpe\nwalk\t1\t17.5\nrun\t0\tnan\n"
    )
    _png(folder / "videos" / "best.gif")
    _png(folder / "plots" / "learning_curve.png")
    (folder / "videos" / "look.html").write_text('<p id="x">"3-D"</p><script>1 < 2</script>')
    return folder


def test_page_shows_settings_versions_and_hardware(run):
    page = _page(run)
    changed = _section(page, "Settings")
    assert "seed 0 4" in changed and "num_envs 256 64" in changed and "ppo.gamma" in changed
    assert changed.index("ppo.gamma") < changed.index("all settings")
    assert "2 × gpu: H" in _section(page, "Versions and hardware")
    assert "jax 0.10.2" in _section(page, "Versions and hardware")
    assert "1 file" in _section(page, "Versions and hardware")
    assert "python -m jaxrl.train cartpole" in page


def test_unchanged_preset_has_no_differences(tmp_path):
    section = _section(_page(folders.make(tmp_path / "run")), "Settings")
    assert "No differences from the current preset cartpole" in section


def test_page_shows_results_and_evaluations(run):
    page = _page(run)
    tiles = unescape(re.sub(r"<[^>]*>", " ", page[page.index('class="tiles') : page.index("<h2>")]))
    assert "last evaluation  70  ± 2" in tiles.replace("\n", " ")
    assert "23s" in tiles and "106 MiB" in tiles and "1,000" in tiles
    section = _section(page, "Evaluation")
    assert "600 70 2 66" in section and "200 26 2 66" in section
    assert section.index("600 70") < section.index("200 26")  # the newest first
    assert "mean reward 77.5 70.25 to 80.5" in section and "timed out 0.125 –" in section
    assert "walk ✓ 17.5" in section and "run ✗ nan" in section
    assert "training 64" in _section(page, "Learning curve")


def test_metrics_are_grouped_and_constants_have_no_chart(run):
    page = _page(run)
    assert "constant: diverged 0" in _section(page, "Episodes")
    assert 'title="train/loss"' in page and 'title="rollout/diverged"' not in page
    names = [
        "time/fps",
        "own",
        "custom/x",
        "train/a",
        "rollout/ep_reward_lift",
        "rollout/ep_len_mean",
    ]
    assert metric_charts.grouped(names) == {
        "Reward terms": ["rollout/ep_reward_lift"],
        "Episodes": ["rollout/ep_len_mean"],
        "Learning": ["train/a"],
        "Other": ["own"],
        "Custom": ["custom/x"],
    }


def test_time_split_adds_up(tmp_path):
    rows = folders.points(6)
    for row in rows[3:]:  # as after a resume, when another process compiled again
        row["time/compile_seconds"] = 1.0
    rows[-1]["time/time_elapsed"] = 25.0
    spent = resources.seconds(load_runs.read(folders.make(tmp_path / "run", rows)))
    assert spent == {"compiling": 6, "training": 12, "evaluating": 1.5, "saving, logging": 5.5}


def test_videos_are_embedded_and_plots_are_not_repeated(run):
    page = _page(run)
    assert "data:image/gif;base64,R0lGOD" in page
    assert "learning_curve.png" not in page
    # An embedded page is sandboxed, and escaped so that it cannot end its attribute.
    (inner,) = re.findall(r'<iframe sandbox="allow-scripts"[^>]* srcdoc="([^"]*)">', page)
    assert unescape(inner) == (run / "videos" / "look.html").read_text()


def test_large_videos_are_linked(tmp_path, monkeypatch):
    folder = folders.make(tmp_path / "run")
    _png(folder / "videos" / "long.gif")
    monkeypatch.setattr("jaxrl.reports.media._MAX_BYTES", 10)
    page = _page(folder)
    assert '<a href="videos/long.gif">' in page and "base64" not in page


def test_latest_command_is_shown_and_earlier_ones_are_folded(tmp_path):
    folder = folders.make(tmp_path / "run")
    with (folder / "command.txt").open("a") as file:
        file.write("python -m jaxrl.train --resume run\n")
    page = _page(folder)
    assert '<code class="command">python -m jaxrl.train --resume run</code>' in page
    assert page.index("--resume run") < page.index("earlier commands (1)")


def test_tasks_are_drawn_in_charts_of_their_own(tmp_path):
    one = folders.make(tmp_path / "one")
    two = folders.make(tmp_path / "two", config=presets.get("ant"))
    page = pages.comparison_page([load_runs.read(run) for run in (one, two)])
    for task in ("cartpole", "ant"):
        assert f"<b>evaluated return of {task} over environment steps</b>" in page


def test_text_of_a_run_is_escaped(tmp_path):
    markup = "<script>alert(1)</script>$body\"'"
    folder = folders.make(tmp_path / "run", [{"step": 1, f"custom/{markup}": 1.0, "train/a": 2.0}])
    (folder / "command.txt").write_text(markup)
    (folder / "evaluation-best.json").write_text(json.dumps({markup: 0.5, "policy": markup}))
    (folder / "x.tsv").write_text(f"{markup}\n{markup}\n")
    provenance = {"versions": {markup: markup}, "devices": [markup], "git": {"commit": markup}}
    provenance |= {"started": markup}
    (folder / "provenance.json").write_text(json.dumps(provenance))
    page = _page(folder)
    assert page.count("<script>") == 1 and "alert(1)" in page


def test_page_has_no_external_links(run):
    assert re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"//.*\n", "", _page(run))) == []


def test_offline_runs_count_gradient_steps(tmp_path):
    rows = [{"step": 500 * i, "train/R_loss": 1.0 / i, "rollout/episodes": 0} for i in range(1, 5)]
    config = presets.get("rrd-offline")
    folder = folders.make(tmp_path / "run", rows, config=config)
    (folder / "rewards.json").write_text('{"episodes": 3, "pearson": 0.76}')
    page = _page(folder)
    assert "R_loss over gradient steps" in page and "environment steps" not in page
    assert "loss of the learnt reward" in page and "log" in _section(page, "Learning curve")
    assert "3 0.76" in _section(page, "Evaluation")


def test_runs_that_stopped_early_or_logged_nothing_have_a_page(tmp_path):
    early = folders.make(tmp_path / "early", [{"step": 10, "train/loss": float("nan")}])
    assert "0% of the plan" in _page(early)
    nothing = folders.make(tmp_path / "nothing", [])
    page = _page(nothing)
    assert "Nothing was logged yet" in page and "Settings" in page and "<svg" not in page
    unevaluated = [{"step": 10, "rollout/ep_rew_mean": 5.5}]
    assert "not evaluated" in _page(folders.make(tmp_path / "unevaluated", unevaluated))


def test_run_with_only_nan_has_a_page(tmp_path):
    rows = [
        {name: float("nan") for name in row} | {"step": row["step"]} for row in folders.points()
    ]
    broken = folders.make(tmp_path / "broken", rows)
    page = _page(broken)
    assert "time/fps" in page and "600" in page and "steps per second</span>" not in page
    fine = folders.make(tmp_path / "fine")
    assert "Final results" in pages.comparison_page([load_runs.read(broken), load_runs.read(fine)])


def test_phases_are_shown_if_logged(tmp_path, run):
    rows = folders.picking([0.0, 0.1, 0.6, 0.97, 0.99], [0.1, 0.5, 0.9, 1.0, 1.0])
    folder = folders.make(tmp_path / "run", rows, config=presets.get("pick-place-easy"))
    section = _section(_page(folder), "Phases")
    assert "1 initialisation 0 to 1 k" in section and "5 convergence 4 k to 5 k" in section
    assert "<h2>Phases</h2>" not in _page(run)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The comparison of three seeds, one of which stopped early, and a run with other settings."""
    place = tmp_path_factory.mktemp("compared")
    for seed in range(3):
        rows = folders.points(4 if seed == 2 else 6, seed)
        folders.make(place / "runs" / f"seed-{seed}", rows, seed=seed)
    folders.make(place / "other", num_envs=64)
    _png(place / "other" / "videos" / "best.gif")
    runs = [*load_runs.find([place / "runs"]), place / "other"]
    return pages.comparison_page([load_runs.read(folder) for folder in runs])


def test_comparison_aggregates_seeds_and_shows_differences(compared):
    assert "4 runs of 2 settings" in compared
    finals = _section(compared, "Final results")
    # 66, 67 and 46: of three seeds none is trimmed.
    assert re.search(r"last evaluation 59\.67 \(46 to 67\) 66 ", finals)
    assert "runs 3 1" in finals
    assert _section(compared, "What differs").endswith("num_envs 64 num_envs 256 64 ")
    members = _section(compared, "Runs")
    assert "seed-2 2 46 66 400" in members and "other 0 66 66 600" in members
    assert "data:image/gif" in compared


def test_comparison_has_the_sections_of_a_run_page(compared):
    evaluation = _section(compared, "Evaluation")
    assert "600 66.5 (66 to 67), 2 of 3 runs 66" in evaluation
    assert "200 23 (22 to 24) 22" in evaluation
    assert "training" in _section(compared, "Time and memory")
    assert "num_envs 256 64" in _section(
        compared, "Settings"
    )  # the values of the preset and of the other group
    assert "jax 0.10.2" in _section(compared, "Versions and hardware")


def _three(place, rows):
    """Return the page of three seeds, of which the last one logged `rows`."""
    for seed, log in enumerate([None, None, rows]):
        folders.make(place / f"seed-{seed}", log, seed=seed)
    return pages.comparison_page([load_runs.read(run) for run in load_runs.find([place])])


def test_seed_with_a_non_finite_return_ranks_worst(tmp_path):
    rows = folders.points(seed=2)
    rows[-1]["eval/mean_reward"] = None  # as non-finite values are logged
    page = _three(tmp_path, rows)
    finals, evaluation = _section(page, "Final results"), _section(page, "Evaluation")
    assert "last evaluation diverged (diverged to 67)" in finals
    assert "600 diverged (diverged to 67)" in evaluation and "400 45 (44 to 46)" in evaluation
    assert "seed-2 2 diverged" in _section(page, "Runs")
    chart = re.search(r'<figure class="chart large".*?</figure>', page, re.S)[0]
    lines = json.loads(unescape(re.search(r'data-lines="([^"]*)"', chart)[1]))
    assert lines[-1]["y"] == [23, 45, None]


def test_diverged_seed_ranks_worst_at_every_later_step(tmp_path):
    rows = [*folders.points(2, seed=2), {"step": 300, "train/loss": None, "train/diverged": 1.0}]
    page = _three(tmp_path, rows)
    assert "last evaluation diverged (diverged to 67)" in _section(page, "Final results")
    evaluation = _section(page, "Evaluation")
    assert "600 diverged (diverged to 67)" in evaluation and "200 23 (22 to 24)" in evaluation


def test_comparison_shows_different_devices(tmp_path):
    for seed in range(2):
        folders.make(tmp_path / f"seed-{seed}", seed=seed)
    file = tmp_path / "seed-1" / "provenance.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"devices": ["NVIDIA H200"]}))
    page = pages.comparison_page([load_runs.read(run) for run in load_runs.find([tmp_path])])
    assert "1 × NVIDIA H200" in _section(page, "What differs")
    assert "1 × NVIDIA H200" in _section(page, "Versions and hardware")


def test_repeated_paths_are_merged_and_repeated_seeds_reported(tmp_path):
    one, again = (folders.make(tmp_path / name) for name in ("one", "again"))
    assert load_runs.find([one, tmp_path / "again" / ".." / "one"]) == [one]
    page = pages.comparison_page([load_runs.read(run) for run in (one, again)])
    assert "a seed that was run twice" in page


def test_curves_are_overlaid(compared):
    charts = re.findall(r'<figure class="chart large".*?</figure>', compared, re.S)
    titles = [re.search(r"<b>(.*?)</b>", chart)[1] for chart in charts]
    assert titles[:2] == [
        "evaluated return over environment steps",
        "evaluated return over minutes",
    ]
    lines = json.loads(unescape(re.search(r'data-lines="([^"]*)"', charts[0])[1]))
    assert [line["y"] for line in lines] == [
        *([22, 44, 66], [23, 45, 67], [24, 46]),
        [23, 45],  # interquartile means, up to the last step of all seeds
        [22, 44, 66],
    ]
    assert charts[0].count("<polygon") == 1 and charts[0].count("line c0 faint") == 3


def test_command_writes_one_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders.make(tmp_path / "a")
    for seed in range(2):
        folders.make(tmp_path / "b" / f"seed-{seed}", seed=seed)
    assert report.main(["a"]) == 0 and "cartpole" in (tmp_path / "a/report.html").read_text()
    assert report.main(["b"]) == 0
    assert "2 runs of cartpole" in (tmp_path / "b/report.html").read_text()
    assert report.main(["a", "b"]) == 0 and (tmp_path / "comparison.html").exists()
    assert report.main(["a", "--out", "x/y.html"]) == 2
    assert report.main(["nowhere"]) == 2
    assert report.main([]) == 2
    out = capsys.readouterr()
    assert "written to b/report.html" in out.out
    errors = ["the folder 'x' does not exist", "'nowhere' does not exist", "at least one run"]
    assert all(text in out.err for text in errors)


def test_unreadable_run_is_left_out_of_a_comparison(tmp_path, capsys):
    for seed in range(3):
        folders.make(tmp_path / f"seed-{seed}", seed=seed)
    settings = tmp_path / "seed-1" / "config.json"
    settings.write_text(settings.read_text().replace('"num_envs"', '"num_worlds"'))
    assert report.main([str(tmp_path)]) == 0
    page, reason = (tmp_path / "report.html").read_text(), "unknown field 'num_worlds'"
    assert "2 runs of cartpole" in page
    assert f"Left out: {settings}: {reason}" in unescape(page)
    assert f"left out: {settings}: {reason}" in capsys.readouterr().err
    for seed in (0, 2):
        (tmp_path / f"seed-{seed}" / "config.json").write_text("{")
    assert report.main([str(tmp_path)]) == 2  # no run is left


def test_command_does_not_import_jax(tmp_path):
    folder = folders.make(tmp_path / "run")
    code = (
        "import sys, jaxrl.report as r\n"
        f"assert r.main([{str(folder)!r}]) == 0\n"
        "assert not {'jax', 'brax', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_failed_report_does_not_fail_the_run(tmp_path, monkeypatch):
    messages = []
    folder = folders.make(tmp_path / "run")
    run = SimpleNamespace(folder=folder, members=[], console=SimpleNamespace(warn=messages.append))

    def fail(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr(pages, "write", fail)
    finalize._write_report(run)
    assert len(messages) == 1 and "report.html was not written: no memory" in messages[0]
