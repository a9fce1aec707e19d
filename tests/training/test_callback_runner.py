"""Callbacks: when they are called, what they may request, and how their errors are handled."""

import dataclasses
import sys
from types import SimpleNamespace

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import jaxrl
from jaxrl import callbacks, train
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir
from jaxrl.rendering import images, run
from jaxrl.training.callback_runner import CallbackError
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


def settings(folder, *extra):
    return train._parse(tiny.flags(folder, *extra)).config


class EventRecorder:
    """Record every event and return its entry of `responses`, or raise it if it is an error."""

    def __init__(self, **responses):
        self.contexts, self.responses = [], responses
        for event in callbacks.EVENTS:
            setattr(self, f"on_{event}", self.record)

    def record(self, context):
        self.contexts.append(context)
        response = self.responses.get(context.event)
        if isinstance(response, Exception):
            raise response
        return response

    def events(self):
        return [(m.event, m.step) for m in self.contexts]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The result of a run, all of its events, and those that a plain function gets."""
    recorder, rows = EventRecorder(), []
    folder = tmp_path_factory.mktemp("recorded") / "run"
    return jaxrl.fit(settings(folder), callbacks=[recorder, rows.append]), recorder, rows


def test_events_fire_in_order_without_affecting_training(plain, recorded):
    result, recorder, rows = recorded
    assert result.env_steps == 512 and result.stopped_because == ""
    events = [event for event in recorder.events() if event[0] != "new_best"]
    assert events == [
        ("training_start", 0),
        ("cycle", 128),
        ("log", 128),
        ("cycle", 256),
        ("evaluation", 256),
        ("epoch", 256),
        ("log", 256),
        ("cycle", 384),
        ("log", 384),
        ("cycle", 512),
        ("evaluation", 512),
        ("epoch", 512),
        ("log", 512),
        ("training_end", 512),
    ]
    assert recorder.events()[recorder.events().index(("evaluation", 256)) + 1] == ("new_best", 256)
    assert [m.event for m in rows] == ["log"] * 4  # a plain function gets complete rows
    logged = tiny.rows(result.folder)
    seen = [dict(m.metrics) for m in rows]
    shown = [{k: v for k, v in row.items() if k in logged[0] | logged[1]} for row in seen]
    assert shown[1].items() >= {k: v for k, v in logged[1].items() if k != "step"}.items()
    assert logged == tiny.rows(plain)
    tiny.assert_same_policy(result.folder, plain)


def test_command_line_names_the_script_that_was_run(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["my study.py", "--fast"])
    assert run_dir.command_line() == "python 'my study.py' --fast"
    monkeypatch.setattr(sys, "argv", ["/anywhere/jaxrl/train.py", "ant"])
    assert run_dir.command_line() == "python -m jaxrl.train ant"
    for program in ("/anywhere/bin/jaxrl", "/anywhere/jaxrl/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program, "train", "ant"])
        assert run_dir.command_line() == "jaxrl train ant"


def test_callback_context_is_read_only_with_float_metrics(recorded):
    result, recorder, _ = recorded
    context = recorder.contexts[-2]
    assert all(type(value) in (float, int) for value in context.metrics.values())
    with pytest.raises(TypeError):
        context.metrics["train/loss"] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.config.seed = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.step = 3
    assert context.folder == result.folder and context.epoch == 2 and context.elapsed > 0


def test_returning_false_stops_and_resume_matches_full_run(plain, tmp_path):
    folder = tmp_path / "run"
    result = jaxrl.fit(settings(folder), callbacks=[lambda context: context.cycle < 1])
    assert result.env_steps == 128 and result.stopped_because == "<lambda>: asked to stop"
    assert (folder / "policies" / "final.npz").exists()
    recorder = EventRecorder()
    assert jaxrl.resume(folder, callbacks=[recorder]).env_steps == 512
    assert recorder.events()[:2] == [("training_start", 128), ("cycle", 256)]
    assert tiny.rows(folder) == tiny.rows(plain)
    tiny.assert_same_policy(folder, plain)


@pytest.mark.parametrize("event", ["cycle", "evaluation", "log", "training_end"])
def test_failing_callback_stops_the_run_and_saves_state(plain, tmp_path, event):
    folder, after = tmp_path / "run", EventRecorder()
    failing = EventRecorder(**{event: ZeroDivisionError("oh")})
    with pytest.raises(
        CallbackError, match=f"callback EventRecorder failed at '{event}'"
    ) as caught:
        jaxrl.fit(settings(folder), callbacks=[failing, after])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "The state was saved" in caught.value.__notes__[0]
    failed_at = {"cycle": 128, "log": 128, "evaluation": 256, "training_end": 512}[event]
    assert [row["step"] for row in tiny.rows(folder)][-1] == failed_at
    assert failing.events()[-1] == (event, failed_at)
    # The others get the rest of the cycle, and the end of the run.
    for each in {event, "log", "training_end"}:
        assert (each, failed_at) in after.events()
    jaxrl.resume(folder)
    assert tiny.rows(folder) == tiny.rows(plain)
    tiny.assert_same_policy(folder, plain)


def test_callback_metrics_are_logged(tmp_path):
    def ratio(metrics):
        return {"per_update": metrics["rollout/episodes"] / metrics["train/n_updates"]}

    folder = tmp_path / "run"
    user_callbacks = [callbacks.LogMetrics(ratio), lambda context: {"mine/cycle": context.cycle}]
    jaxrl.fit(settings(folder, "--epochs", "1"), callbacks=user_callbacks)
    rows = tiny.rows(folder)
    assert [row["mine/cycle"] for row in rows] == [1.0, 2.0]
    assert rows[1]["custom/per_update"] == rows[1]["rollout/episodes"] / rows[1]["train/n_updates"]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"train/loss": 1.0}, "logged already"),
        ({"name": "text"}, "no number"),
        ({3: 1.0}, "names must be strings"),
        ("stop", "return None, False, a dict"),
        (callbacks.CallbackAction(evaluate=True), "at 'cycle' only"),
    ],
)
def test_invalid_return_values_are_rejected(tmp_path, response, text):
    with pytest.raises(CallbackError, match=text):
        jaxrl.fit(settings(tmp_path / "run"), callbacks=[lambda context: response])
    assert len(tiny.rows(tmp_path / "run")) == 1


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        (3, "neither a function"),
        (callbacks.StopOnReward, r"give an object of it, StopOnReward\(...\)"),
        (type("Own", (), {"on_evaluate": print})(), "Did you mean 'on_evaluation'?"),
    ],
)
def test_invalid_callbacks_are_rejected_before_training(tmp_path, callback, text):
    with pytest.raises(UserError, match=text):
        jaxrl.fit(settings(tmp_path / "run"), callbacks=[callback])
    assert not (tmp_path / "run").exists()


def test_checkpoints_and_evaluations_on_request(plain, tmp_path):
    folder = tmp_path / "run"
    requested = [callbacks.CheckpointEvery(cycles=3), callbacks.EvaluateEvery(cycles=1)]
    jaxrl.fit(settings(folder), callbacks=requested)
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["256", "384", "512"]
    assert all("eval/mean_reward" in row for row in tiny.rows(folder))
    tiny.assert_same_policy(folder, plain)
    with pytest.raises(CallbackError, match="set --eval.num-envs > 0"):
        jaxrl.fit(settings(tmp_path / "blind", "--eval.num-envs", "0"), callbacks=requested)


def test_stop_on_reward_and_stop_on_time(tmp_path):
    def fit(name, callback, *extra):
        return jaxrl.fit(settings(tmp_path / name, *extra), callbacks=[callback])

    result = fit("reward", callbacks.StopOnReward(-1.0))
    assert result.env_steps == 256 and "has reached -1" in result.stopped_because
    assert fit("unreached", callbacks.StopOnReward(1e6)).env_steps == 512
    result = fit("time", callbacks.StopOnTime(minutes=0.0))
    assert result.env_steps == 128 and "0 minutes are over" in result.stopped_because


def test_stop_on_no_improvement_counts_consecutive_evaluations():
    stop, config = callbacks.StopOnNoImprovement(2, at_least=1), settings("x")

    def context(best, event="evaluation"):
        empty: dict[str, float] = {}
        return callbacks.CallbackContext(event, 0, 0, 0, 0.0, empty, empty, best, None, config)

    stop.on_training_start(context(5.0, "training_start"))
    responses = [stop.on_evaluation(context(b)).stop for b in (5.0, 5.0, 6.0, 6.0, 6.0)]
    assert responses[:4] == [""] * 4 and "in 2 evaluations" in responses[4]


def test_evaluation_callbacks_require_evaluation_envs(tmp_path):
    config = settings(tmp_path / "run", "--eval.num-envs", "0")
    start = SimpleNamespace(config=config, best=None)
    for callback in (
        callbacks.StopOnReward(1.0),
        callbacks.StopOnNoImprovement(1),
        callbacks.RecordVideo(epochs=1),
    ):
        with pytest.raises(UserError, match="set --eval.num-envs > 0"):
            callback.on_training_start(start)


def test_nan_reward_does_not_reach_the_threshold():
    context = SimpleNamespace(evaluation={"eval/mean_reward": float("nan")})
    assert not callbacks.StopOnReward(1.0).on_evaluation(context).stop


def test_videos_are_rendered_at_the_end_of_epochs(tmp_path, monkeypatch):
    calls = []

    def render(*given, **options):
        calls.append((*given, options["seconds"]))
        given[2].parent.mkdir(exist_ok=True)
        frames = [Image.new("RGB", (8, 6), (shade, 0, 0)) for shade in (0, 255)]
        frames[0].save(given[2], save_all=True, append_images=frames[1:])

    monkeypatch.setattr(run, "render_run", render)
    folder = tmp_path / "run"
    jaxrl.fit(settings(folder, "--log.video-epochs", "2"))
    video = folder / "videos" / "step-512.gif"
    assert [(call[0], call[2], call[3]) for call in calls] == [(folder, video, 5)]
    events = EventAccumulator(str(folder / "tensorboard" / "videos"))
    events.Reload()
    (shown,) = events.Images("eval/video")
    assert (shown.step, shown.width, shown.height) == (512, 8, 6)
    assert shown.encoded_image_string == video.read_bytes()
    # With several members, the first is rendered.
    (folder / "seed-3" / "policies").mkdir(parents=True)
    many = SimpleNamespace(epoch=2, step=9, best=1.0, folder=folder, config=settings(folder))
    callbacks.RecordVideo(epochs=2).on_epoch(many)
    assert (calls[1][0], calls[1][2]) == (folder / "seed-3", folder / "videos" / "step-9.gif")


def test_failed_video_does_not_stop_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(images, "_VIDEO_PACKAGES", ("no_such_package",))
    folder = tmp_path / "run"
    result = jaxrl.fit(settings(folder), callbacks=[callbacks.RecordVideo(1, suffix=".mp4")])
    assert result.env_steps == 512 and not (folder / "videos").exists()
    err = capsys.readouterr().err
    assert err.count("pip install -e '.[video]'") == 2
    assert "warning: no video of step 256, training continues: " in err
    with pytest.raises(UserError, match=r"suffix must be one of \.html, \.gif, \.mp4, \.png"):
        callbacks.RecordVideo(epochs=1, suffix=".tiff")
