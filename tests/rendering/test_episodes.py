"""Rendering of evaluation episodes, failed episodes, and every output format."""

import importlib.machinery
import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxrl import render
from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir
from jaxrl.policies import load
from jaxrl.rendering import episodes, images, video
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs")

DRILL = "tests.helpers.custom_envs:Drill"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("rendering") / "run", "--epochs", "1", "--cycles", "1")


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    flags = ("--env", DRILL, "--task.episode-length", "8", "--epochs", "1", "--cycles", "1")
    return tiny.run(tmp_path_factory.mktemp("run") / "drill", *flags, "--eval.num-envs", "0")


@pytest.fixture(scope="module")
def recorded(run):
    """Return the config of a run, its policy, its environment, and three episodes."""
    config = run_dir.read_config(run, None)
    policy, env = load.load_policy(run), episodes.build_env(config)
    return config, policy, env, episodes.record_episodes(policy, config, env, number=3, seed=5)


def test_recorded_episodes_match_the_evaluation(recorded):
    config, policy, env, played = recorded
    evaluated = load.run_episodes(policy, config, episodes=3, seed=5, env=env)
    for i, one in enumerate(played):
        assert len(one.rewards) == evaluated.lengths[i] == len(one.states["qpos"]) - 1
        assert one.rewards.sum() == pytest.approx(float(evaluated.returns[i]))
        assert one.number == i + 1 and one.success is None
        assert np.abs(one.states["qpos"][0]).max() <= 0.05  # the start is recorded too
    assert len({tuple(one.states["qpos"][0]) for one in played}) == 3


def test_without_a_success_metric_failures_have_the_lowest_returns(recorded):
    config, policy, env, _ = recorded
    worst = episodes.record_episodes(policy, config, env, number=4, failures=True)
    searched = load.run_episodes(policy, config, episodes=episodes.SEARCHED, env=env)
    assert [one.rewards.sum() for one in worst] == sorted(searched.returns.tolist())[:4]
    for one in worst:
        assert searched.returns[one.number - 1] == one.rewards.sum()


def test_render_clips_by_name_and_failed_clips(drill, tmp_path, capsys):
    given = [str(drill), "--env", DRILL, "--policy", "final", "--out", str(tmp_path / "video.html")]
    assert render.main([*given, "--clip", "slow"]) == 0
    assert "episode 1, slow: return" in (output := capsys.readouterr().out)
    assert "success, 8 steps" in output
    assert render.main([*given, "--failures", "--episodes", "3"]) == 0
    output = capsys.readouterr().out
    assert (
        "episode 3, fast: return" in output
        and "failed, 10 steps" in output
        and "slow" not in output
    )
    assert render.main([*given, "--clip", "slo"]) == 2
    assert "Did you mean 'slow'?" in capsys.readouterr().err


def test_no_failures_is_an_error():
    good = episodes.RecordedEpisode(1, None, True, np.ones(3), np.zeros((4, 1)))
    bad = good._replace(number=2, success=False)
    assert episodes._failed([good, bad, bad], 1) == [bad]
    with pytest.raises(UserError, match="no episode of 1 failed"):
        episodes._failed([good], 1)


def test_html_page_lists_every_episode(recorded, tmp_path):
    _, _, env, played = recorded
    video.write(video.VideoSpec(env, "cartpole"), played, tmp_path / "new" / "page.html")
    (found,) = re.findall(
        r"const DATA = (.*);</script>", (tmp_path / "new" / "page.html").read_text()
    )
    listed = json.loads(found)["episodes"]
    assert [one["title"] for one in listed] == [one.title for one in played]
    assert [one["steps"] for one in listed] == [len(one.rewards) for one in played]
    assert listed[0]["stride"] == 2 and listed[0]["pause"] == pytest.approx(0.04)


def test_gif_and_png_output(recorded, tmp_path):
    _, _, env, played = recorded
    video.write(video.VideoSpec(env, "x"), played[:2], tmp_path / "video.gif")
    with Image.open(tmp_path / "video.gif") as gif:
        steps = [len(one.rewards) for one in played[:2]]
        assert gif.n_frames <= sum(len(np.unique([*range(0, n, 2), n])) for n in steps)
        assert gif.info["duration"] == 40 and gif.size == (480, 360)
    video.write(video.VideoSpec(env, "x", seconds=0.1), played, tmp_path / "video.png")
    with Image.open(tmp_path / "video.png") as image:
        assert image.size == (4 * 480, 3 * 360)


def test_episode_is_rendered_until_it_becomes_non_finite(recorded):
    _, _, env, (one, *_) = recorded
    qpos = one.states["qpos"].copy()
    qpos[4:] = np.nan
    spec, broken = video.VideoSpec(env, "x", fps=50), one._replace(states={"qpos": qpos})
    assert video._frame_steps(spec, broken, ".gif").tolist() == [0, 1, 2, 3]


def _no_ffmpeg():
    raise RuntimeError("No ffmpeg exe could be found.")


def test_missing_ffmpeg_gives_an_install_hint(monkeypatch):
    def assert_hint():
        with pytest.raises(UserError, match=r"pip install -e '\.\[video\]'"):
            images.check_video_support(Path("video.mp4"))

    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None)
        assert_hint()
    for name in ("imageio", "imageio_ffmpeg"):  # both packages, but no FFmpeg inside
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["imageio_ffmpeg"], "get_ffmpeg_exe", _no_ffmpeg, raising=False)
    assert_hint()


def test_mp4_is_written(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    images.save([np.zeros((33, 41, 3), np.uint8)] * 5, tmp_path / "video.mp4", 25.0)
    assert (tmp_path / "video.mp4").stat().st_size


INVALID = {
    "--out episode.mp3": "must end in .html, .gif, .mp4, .png",
    "--episodes 0": "--episodes must lie between 1 and",
    "--seconds 0": "--seconds must be greater than 0",
    "--seconds inf": "--seconds must be greater than 0, not inf",
    "--fps 0.0001": "--fps must be at least 0.01, not 0.0001",
    "--clip walk": "follows no motion clips",
    "--failures --clip walk": "leave out --clip",
    "--gl --out episode.html": "leave it out",
}


@pytest.mark.parametrize("flags", INVALID)
def test_invalid_arguments_are_rejected(flags, run, capsys):
    assert render.main([str(run), *flags.split()]) == 2
    assert INVALID[flags] in capsys.readouterr().err


def test_gymnasium_environments_are_rejected():
    with pytest.raises(UserError, match="gymnasium.make"):
        episodes.build_env(TrainConfig(env="gym:CartPole-v1"))
