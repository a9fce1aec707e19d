"""Evaluation of motion trackers: every clip, metrics, files and failures."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from jaxrl import evaluate
from jaxrl.envs.hooks import Hooks, TrialCondition
from jaxrl.envs.tasks import tracking
from jaxrl.envs.tasks.imitation import Imitation
from jaxrl.evaluation.episodes import Episodes
from jaxrl.rendering import software_renderer
from jaxrl.reports import clips as clip_report
from tests.helpers import custom_envs, tiny

DRILL = "tests.helpers.custom_envs:Drill"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    flags = ("--env", DRILL, "--task.episode-length", "8", "--epochs", "1", "--cycles", "1")
    return tiny.run(tmp_path_factory.mktemp("run") / "drill", *flags, "--eval.num-envs", "0")


def test_every_clip_is_reported(run, capsys):
    assert evaluate.main([str(run), "--env", DRILL, "--policy", "final", "--episodes", "7"]) == 0
    stdout = capsys.readouterr().out
    assert "--episodes is ignored: each clip is played once, 3 in all" in stdout
    assert "success rate                          66.7%" in stdout
    assert "failed: fast\n" in stdout and "failed strictly: fast\n" in stdout
    assert "to plan feasible versions of clips" in stdout
    assert "trials                                66.7% (66.7%)    66.7% (66.7%)\n" in stdout
    report = json.loads((run / "evaluation-final.json").read_text())
    assert report["episodes"] == 3 and report["lengths"] == [
        5,
        8,
        10,
    ]  # training stopped episodes at 8
    assert report["failed_clips"] == report["strictly_failed_clips"] == ["fast"]
    for name in ("mpjpe", "mpjpel", "mpjpe_pa", "vel_dist", "accel_dist"):
        assert {f"{name}_all", f"{name}_succ"} <= report.keys()
        assert f"{report[f'{name}_all']:.2f}" in stdout
    with open(run / "evaluation-final.tsv") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["name"] for row in rows] == ["still", "slow", "fast"]
    assert [row["frames"] for row in rows] == ["5", "8", "10"]
    assert report["success_rate_zero"] == report["success_rate_strict_zero"] == pytest.approx(2 / 3)
    assert [row["zero_success"] for row in rows] == ["1", "1", "0"]
    assert [row["planned"] for row in rows] == ["1", "0", "0"]
    assert [row["success"] + row["strict_success"] for row in rows] == ["11", "11", "00"]
    # The fast target gains 0.15 m a step on the dot, which the policy moves by 0.01 at most.
    assert float(rows[2]["worst_distance"]) == pytest.approx(1500, abs=10)
    assert float(rows[2]["mpjpe"]) == pytest.approx(825, abs=10)
    assert float(rows[2]["seconds"]) == pytest.approx(10 / 30, abs=1e-3)
    assert json.loads(json.dumps(report["clips"][2]))["mpjpe"] == float(rows[2]["mpjpe"])


def test_conditions_are_reported_side_by_side(run, tmp_path, monkeypatch, capsys):
    """Each is played in an environment of its own."""

    def both(drill, config):
        return [TrialCondition("", "trials", config), TrialCondition("pushed", "hit", config)]

    monkeypatch.setattr(custom_envs.Drill, "trial_conditions", both, raising=False)
    out = tmp_path / "report.json"
    assert evaluate.main([str(run), "--env", DRILL, "--policy", "final", "--out", str(out)]) == 0
    assert f"{'hit':<34} {'66.7% (66.7%)':>16} {'66.7% (66.7%)':>16}\n" in capsys.readouterr().out
    report = json.loads(out.read_text())
    for name in ("success_rate_pushed", "success_rate_strict_pushed_zero"):
        assert report[name] == pytest.approx(2 / 3)
    with open(out.with_suffix(".tsv")) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["pushed_zero_success"] for row in rows] == ["1", "1", "0"]


REFUSED = {
    "--clips nowhere": "follows no motion clips",
    "--render video.mp4": "must end in .gif or .png",
    "--render video.gif --render-clip slo": "Did you mean 'slow'?",
    "--render-clip slow": "needs --render",
    "--episodes 0": "must lie between 1 and",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_invalid_flags_are_refused_before_evaluation(flags, run, capsys):
    given = [str(run), "--env", DRILL, "--policy", "final", *flags.split()]
    assert evaluate.main(given) == 2
    assert REFUSED[flags] in capsys.readouterr().err


def test_clips_flag_replaces_the_clips_of_the_run(tmp_path):
    config = evaluate.TrainConfig(env="imitation")
    command = evaluate.EvaluateArgs(run=tmp_path, clips=tmp_path / "others")
    assert evaluate._with_clips(config, command).motion.clips == tmp_path / "others"
    assert evaluate._with_clips(config, evaluate.EvaluateArgs(run=tmp_path)) is config


def _trace(far):
    """Two clips of 4 and 2 frames, of which body 1 is `far` [steps, clips] away."""
    played = np.zeros((4, 2, 2, 3), np.float32)
    played[:, :, 1, 0] = far
    bodies = np.ones((4, 2, 2), bool)
    return {"position": played, "captured": np.zeros_like(played), "success_bodies": bodies}


def test_errors_are_means_over_frames_before_the_episode_end():
    far = np.float32([[0.1, 0.4], [0.1, 0.2], [0.1, 9.0], [0.3, np.nan]])
    found = tracking.evaluate(_trace(far), np.int32([4, 2]))
    np.testing.assert_allclose(found.max_distance, [300.0, 400.0], rtol=1e-6)
    assert found.success.tolist() == [True, True]
    assert found.strict_success.tolist() == [False, False]
    np.testing.assert_allclose(found.errors["mpjpe"], [75.0, 150.0], rtol=1e-5)
    summary = tracking.metrics(found)
    assert summary["eval/mpjpe_all"] == pytest.approx(100.0, rel=1e-5)  # 600 mm in 6 frames
    # Differences: 0, 0, 100 mm of the first clip's frames and 100 mm of the second's only one.
    assert summary["eval/vel_dist_all"] == pytest.approx((100 + 100) / 4, rel=1e-5)
    assert summary["eval/accel_dist_all"] == pytest.approx(100 / 2, rel=1e-5)


def test_non_finite_clip_fails_and_has_no_errors():
    far = np.float32([[0.0, 0.1], [0.0, np.nan], [0.0, 0.0], [0.0, 0.0]])
    result = Episodes(np.zeros(2), np.int32([4, 2]), None, _trace(far))
    library = SimpleNamespace(names=("good", "bad"), planned=("bad",), fps=30.0)
    report = tracking.report(result, library)
    clips = report.table
    assert clips[1]["mpjpe"] is None and clips[1]["worst_distance"] is None
    assert tracking.failed(clips) == tracking.failed(clips, "strict_success") == ["bad"]
    assert report.worst == "bad"
    assert json.loads(json.dumps(clips, allow_nan=False)) == clips


def test_video_shows_the_clip_beside_its_reference(tmp_path, monkeypatch):
    drawn = {}

    def render_poses(model, qpos, reference=None):
        drawn.update(model=model, qpos=qpos, reference=reference)
        return [np.zeros((4, 4, 3), np.uint8)] * len(qpos)

    monkeypatch.setattr(software_renderer, "render_poses", render_poses)
    reference_qpos = np.arange(2 * 5 * 3.0).reshape(2, 5, 3)  # [clips, frames, nq]
    reference = SimpleNamespace(qpos=reference_qpos.reshape(10, 3))
    library = SimpleNamespace(
        names=("a", "b"), captured_motion=reference, rows=lambda i: slice(5 * i, 5 * i + 5)
    )
    inner = Imitation.__new__(Imitation)
    inner.library, inner.humanoid = library, SimpleNamespace(model="model")
    env = SimpleNamespace(env=SimpleNamespace(inner=inner), hooks=Hooks(inner, has_trials=True))
    qpos = np.random.default_rng(0).normal(size=(4, 2, 3))
    result = Episodes(np.zeros(2), np.int32([4, 3]), None, {"qpos": qpos})
    clip_report.write_video(result, env, "b", tmp_path / "video.gif")
    assert (tmp_path / "video.gif").stat().st_size
    np.testing.assert_array_equal(drawn["qpos"], qpos[:3, 1])
    np.testing.assert_array_equal(drawn["reference"], reference_qpos[1, 1:4])
