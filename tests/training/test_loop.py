"""Whole training runs: output files, reproducibility, resume and error handling."""

import importlib.machinery
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import threading
import time
import types
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, train
from jaxrl.checkpoint import manager
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers import run_dir, sinks
from jaxrl.loggers.eval_log import EvalLog
from jaxrl.programs import device
from jaxrl.programs.device import compile_programs
from jaxrl.reports import load_runs
from jaxrl.training import resume, run, summary
from jaxrl.utils import signals
from jaxrl.utils.xla_options import CompilerBusyError
from tests.helpers import tiny

# In this order: `finished` has plots, the other runs have none.
pytestmark = pytest.mark.usefixtures("shared_programs", "finished", "no_plots")

SB3_KEYS = [
    "rollout/ep_rew_mean",
    "rollout/ep_len_mean",
    "eval/mean_reward",
    "eval/std_reward",
    "eval/iqm_reward",
    "eval/mean_ep_length",
    "train/approx_kl",
    "train/clip_fraction",
    "train/explained_variance",
    "train/policy_gradient_loss",
    "train/value_loss",
    "train/entropy_loss",
    "train/learning_rate",
    "train/grad_norm",
    "train/n_updates",
    "train/loss",
    "time/fps",
    "time/time_elapsed",
    "time/total_timesteps",
    "time/iterations",
    "time/memory_mb",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("loop") / "run")


@pytest.fixture(scope="module")
def half(tmp_path_factory, no_plots):
    """The first of two epochs."""
    return tiny.run(tmp_path_factory.mktemp("half") / "run", "--epochs", "1")


@pytest.fixture(scope="module")
def recompiled(tmp_path_factory, no_plots):
    """The same run with programs of its own, and the number of compilations up to each row."""
    compilations, seen, opened = [], {}, sinks.open_sinks

    def count(name, *_, **__):
        if "backend_compile" in name:
            compilations.append(name)

    def counting(*arguments):
        made = opened(*arguments)
        return made._replace(
            cycle=[*made.cycle, lambda step, _: seen.update({step: len(compilations)})]
        )

    jax.monitoring.register_event_duration_secs_listener(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "compile_programs", compile_programs)
        patch.setattr(sinks, "open_sinks", counting)
        return tiny.run(tmp_path_factory.mktemp("again") / "run"), seen


def test_run_folder_is_complete(finished):
    for name in [
        "config.json",
        "command.txt",
        "provenance.json",
        "metrics.jsonl",
        "evaluations.npz",
        "policies/best.npz",
        "policies/final.npz",
        "plots/learning_curve.png",
        "report.html",
    ]:
        assert (finished / name).stat().st_size > 0, name
    assert sorted(p.name for p in (finished / "checkpoints").iterdir()) == ["256", "512"]
    provenance = json.loads((finished / "provenance.json").read_text())
    assert provenance["versions"]["jax"] == jax.__version__


def test_metrics_have_sb3_names_and_increasing_steps(finished):
    points = tiny.rows(finished, timed=True)
    assert [p["step"] for p in points] == [128, 256, 384, 512]
    missing = [key for key in SB3_KEYS if key not in points[-1]]
    assert not missing
    assert "eval/mean_reward" not in points[0] and "eval/mean_reward" in points[1]


def events(folder):
    """Read a run's TensorBoard events."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    return found.Reload()


def test_tensorboard_can_be_read_back(finished):
    found = events(finished)
    name = "rollout/ep_rew_mean"
    logged = {p["step"]: p[name] for p in tiny.rows(finished) if name in p}
    assert len(logged) >= 2
    assert {s.step: s.value for s in found.Scalars(name)} == pytest.approx(logged, rel=1e-6)
    assert [s.step for s in found.Scalars("eval/mean_reward")] == [256, 512]
    assert "_hparams_/session_start_info" in found.summary_metadata


def test_evaluations_file_has_sb3_layout(finished):
    with np.load(finished / "evaluations.npz") as data:
        assert data["timesteps"].tolist() == [256, 512]
        assert data["results"].shape == data["ep_lengths"].shape == (2, 4)
        assert "successes" not in data.files  # cart-pole reports none
        mean = tiny.rows(finished)[1]["eval/mean_reward"]
        assert data["results"][0].mean() == pytest.approx(mean)


def test_resume_warns_of_damaged_logs(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "run")
    log, record = folder / "metrics.jsonl", folder / "evaluations.npz"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b"\xff" + b"".join(lines[1:2] + lines[3:]))
    record.write_bytes(record.read_bytes()[:200])
    assert train.main(["--resume", str(folder)]) == 0
    output = capsys.readouterr().out
    assert f"warning: 1 damaged row of {log} dropped" in output
    assert f"warning: 2 rows missing from {log}, the first at step 256" in output
    assert f"warning: {record} is damaged and was moved to evaluations.npz.damaged-1" in output
    assert (folder / "evaluations.npz.damaged-1").stat().st_size == 200
    assert [row["step"] for row in tiny.rows(folder)] == [128, 512]


@pytest.mark.parametrize("log", [b'{"step": 1280}\n', b"\xff\n" * 9])
def test_run_with_lost_checkpoints_does_not_restart(tmp_path, log):
    config = train._parse(tiny.flags(tmp_path)).config
    (tmp_path / "metrics.jsonl").write_bytes(log)
    nothing = types.SimpleNamespace(steps=lambda: [])
    assert not resume.never_saved(config, nothing, tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 128}\n')
    assert resume.never_saved(config, nothing, tmp_path)


def test_changed_episode_count_moves_earlier_evaluations_aside(tmp_path):
    def episodes(number):
        return Episodes(np.ones(number, np.float32), np.full(number, 9), None)

    path = tmp_path / "evaluations.npz"
    before = EvalLog(path, None)
    before.add(1, episodes(4))
    before.add(2, episodes(4))
    after = EvalLog(path, 2)  # resumed, with another --eval.num-envs
    after.add(3, episodes(6))
    after.add(4, episodes(6))
    for file, steps, number in (
        (path, [3, 4], 6),
        (tmp_path / "evaluations-until-2.npz", [1, 2], 4),
    ):
        with np.load(file) as data:
            assert data["timesteps"].tolist() == steps
            assert data["results"].shape == (2, number)


def test_seed_determines_the_run(finished, recompiled, tmp_path):
    again, _ = recompiled
    other = tiny.run(tmp_path / "other", "--seed", "1")
    assert tiny.rows(again) == tiny.rows(finished)
    tiny.assert_same_policy(again, finished)
    assert tiny.rows(other) != tiny.rows(finished)


def test_nothing_compiles_after_the_first_epoch(recompiled):
    _, compilations = recompiled
    assert compilations[128] > 0
    assert compilations[256] == compilations[384] == compilations[512]


def test_evaluation_does_not_change_training(finished, tmp_path, monkeypatch):
    often = tiny.run(tmp_path / "often", "--eval.every", "1")
    monkeypatch.setattr(device, "compile_programs", compile_programs)  # compile again, not shared
    without = tiny.run(tmp_path / "run", "--eval.num-envs", "0")
    tiny.assert_same_policy(without, finished)
    tiny.assert_same_policy(often, finished)
    trained = [{k: v for k, v in p.items() if "eval/" not in k} for p in tiny.rows(finished)]
    assert tiny.rows(without) == trained
    assert all("eval/mean_reward" in p for p in tiny.rows(often))


def test_best_policy_is_the_best_evaluated(tmp_path):
    folder = tiny.run(tmp_path / "run", "--epochs", "4", "--eval.every", "1")
    points = tiny.rows(folder)
    best = max(points, key=lambda p: p["eval/mean_reward"])
    assert best["eval/mean_reward"] > points[-1]["eval/mean_reward"]
    policy = jaxrl.load_policy(folder, "best")
    assert policy.info["eval/mean_reward"] == best["eval/mean_reward"]
    assert points[-1]["eval/best_mean_reward"] == best["eval/mean_reward"]


def test_profile_writes_a_trace_and_changes_nothing(finished, tmp_path):
    folder = tiny.run(tmp_path / "run", "--profile")
    assert list((folder / "profile").rglob("*.xplane.pb"))
    assert list((folder / "profile").rglob("perfetto_trace.json.gz"))
    tiny.assert_same_policy(folder, finished)


@pytest.mark.parametrize("asked, done", [(1, 128), (300, 384)])
def test_total_steps_replaces_epochs(asked, done, tmp_path):
    folder = tiny.run(tmp_path / "run", "--total-steps", str(asked))
    assert tiny.rows(folder)[-1]["step"] == done  # whole cycles of 128 steps, at least one


@pytest.mark.parametrize("longer", ["--epochs 2", "--total-steps 512"])
def test_extended_resume_equals_one_long_run(longer, finished, half, tmp_path, monkeypatch):
    folder = shutil.copytree(half, tmp_path / "run")
    assert tiny.rows(folder)[-1]["step"] == 256
    (folder / "command.txt").write_text("the first\n")
    monkeypatch.setattr(run_dir, "command_line", lambda: "the second")
    assert train.main(["--resume", str(folder), *longer.split()]) == 0
    assert tiny.rows(folder) == tiny.rows(finished)
    tiny.assert_same_policy(folder, finished)
    with np.load(folder / "evaluations.npz") as data:
        assert data["timesteps"].tolist() == [256, 512]
    monkeypatch.setattr(run_dir, "command_line", lambda: "a third")
    assert load_runs.read(folder).commands == ["the first", "the second"]
    # Already finished: no cycle is repeated and no row is lost.
    assert train.main(["--resume", str(folder)]) == 0
    assert tiny.rows(folder) == tiny.rows(finished)
    assert load_runs.read(folder).command == "the second"


PHASES = {
    "compiling": (device, "compile_programs"),
    "training": (device.DeviceExecutor, "run_cycle"),
    "evaluating": (device.DeviceExecutor, "evaluate"),
    "saving": (manager, "write_manifest"),
}


@pytest.mark.parametrize("phase", PHASES)
def test_resume_after_ctrl_c_equals_uninterrupted_run(phase, finished, tmp_path, monkeypatch):
    folder, received, ended = tmp_path / "run", threading.Event(), []
    owner, name = PHASES[phase]
    function, receive = getattr(owner, name), signals.StopRequest.receive

    def receive_and_set(self, number):
        receive(self, number)
        received.set()

    def interrupted(*arguments):
        if not received.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            assert received.wait(60)
            if ended:
                raise KeyboardInterrupt  # the process would be gone
        return function(*arguments)

    monkeypatch.setattr(signals, "_exit", lambda *given: ended.append(given))
    monkeypatch.setattr(signals.StopRequest, "receive", receive_and_set)
    monkeypatch.setattr(owner, name, interrupted)
    assert train.main(tiny.flags(folder)) == 130
    text = "\nSIGINT: stopped while compiling, before any training\n"
    assert ended == ([(signal.SIGINT, text)] if phase == "compiling" else [])
    monkeypatch.setattr(owner, name, function)
    assert train.main(["--resume", str(folder)]) == 0
    assert tiny.rows(folder) == tiny.rows(finished)
    tiny.assert_same_policy(folder, finished)


def test_damaged_checkpoint_falls_back_with_a_warning(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "run")
    data = max((folder / "checkpoints" / "512").rglob("*"), key=lambda p: p.stat().st_size)
    broken = bytearray(data.read_bytes())
    broken[len(broken) // 2] ^= 0xFF
    data.write_bytes(broken)
    capsys.readouterr()
    assert train.main(["--resume", str(folder)]) == 0
    assert "512 is damaged and was skipped" in capsys.readouterr().out
    assert tiny.rows(folder) == tiny.rows(finished)
    tiny.assert_same_policy(folder, finished)
    scalars = events(folder).Scalars("train/loss")  # repeated steps appear once
    assert [scalar.step for scalar in scalars] == [128, 256, 384, 512]


def test_resume_without_intact_checkpoint_is_refused(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "run")
    for manifest in folder.glob("checkpoints/*/manifest.json"):
        manifest.write_text("{")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert train.main(["--resume", str(folder)]) == 2
    assert "no intact checkpoint in" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_fps_excludes_compilation_and_counts_env_steps(tmp_path, monkeypatch):
    wait = device.DeviceExecutor.wait

    def slow_wait(self):
        time.sleep(1.0)
        wait(self)

    monkeypatch.setattr(device.DeviceExecutor, "wait", slow_wait)
    folder = tiny.run(tmp_path / "run", "--epochs", "1", "--cycles", "1")
    (row,) = tiny.rows(folder, timed=True)
    assert row["time/compile_seconds"] >= 1 > row["time/cycle_seconds"]
    # Two iterations of 8 steps in 8 environments; a repeated action counts as several steps.
    assert row["time/fps"] == pytest.approx(128 / row["time/cycle_seconds"])
    once = train._parse(tiny.FLAGS).config
    thrice = replace(once, task=replace(once.task, action_repeat=3))
    assert (once.steps_per_iteration, thrice.steps_per_iteration) == (64, 192)


def test_error_in_training_saves_the_state(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def failing(self, cycles):
        if cycles == 3:
            raise ValueError("a bug after logging")
        return False

    monkeypatch.setattr(run.Run, "is_due_for_saving", failing)
    with pytest.raises(ValueError, match="a bug") as caught:
        train.main(tiny.flags(folder))
    assert "the state was saved" in "".join(caught.value.__notes__)
    assert (folder / "checkpoints" / "384").is_dir()
    monkeypatch.undo()
    assert train.main(["--resume", str(folder)]) == 0
    assert tiny.rows(folder) == tiny.rows(finished)


def test_error_before_logging_loses_no_row(finished, tmp_path, monkeypatch):
    """A state whose row was not logged is not saved, so the cycle is run again."""
    folder = tmp_path / "run"
    add = EvalLog.add

    def failing(self, step, result):
        if step == 512:
            raise OSError(28, "No space left on device", "evaluations.npz")
        add(self, step, result)

    monkeypatch.setattr(EvalLog, "add", failing)
    assert train.main(tiny.flags(folder)) == 2
    monkeypatch.undo()
    assert train.main(["--resume", str(folder)]) == 0
    assert tiny.rows(folder) == tiny.rows(finished)
    with np.load(folder / "evaluations.npz") as data:
        assert data["timesteps"].tolist() == [256, 512]


def test_persistent_non_finite_gradients_stop_the_run(tmp_path, capsys):
    flags = (
        "--env tests.helpers.nan_envs:Overflow --backend None --task.no-random-first-age "
        "--epochs 9 --task.episode-length 1000 --ppo.max-nonfinite-updates 12"
    )
    assert train.main(tiny.flags(tmp_path / "run", *shlex.split(flags))) == 2
    message = capsys.readouterr().err
    # Non-finite from iteration 5 on, 4 updates each: 8 consecutive at step 384, 16 at 512.
    assert "diverged at step 512: 16 consecutive non-finite updates" in message
    assert "train/loss" in message
    assert "checkpoint at step 256 is untouched" in message
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["256"]
    rows = tiny.rows(tmp_path / "run")
    assert [row["train/n_skipped"] for row in rows[-2:]] == [8, 16]  # the last one has diverged
    assert not any("rollout/ep_rew_mean" in row for row in rows)  # no episode has ended


def test_disk_errors_are_readable(tmp_path, monkeypatch, capsys):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("jaxrl.utils.atomic_io.write_text", full)
    assert train.main(tiny.flags(tmp_path / "run")) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_load_policy_acts_on_single_and_batched_observations(finished):
    act = jaxrl.load_policy(finished)
    one, many = act(np.zeros(4)), act(np.zeros((3, 4)))
    assert one.shape == () and many.shape == (3,)
    assert act(np.zeros(4), jax.random.key(0)).shape == ()
    assert act.info["env"] == "cartpole"
    assert repr(act).startswith("<LoadedPolicy of cartpole after ") and "\n" not in repr(act)
    assert "observations (4,), 2 discrete actions>" in repr(act)
    with pytest.raises(UserError, match=r"observations of shape \(4,\), .* not \(3,\)"):
        act(np.zeros(3))


def test_evaluate_command_prints_and_writes(finished, capsys, tmp_path):
    out = tmp_path / "result.json"
    assert evaluate.main([str(finished), "--episodes", "5", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["episodes"] == len(report["returns"]) == 5
    assert report["mean_reward"] == pytest.approx(np.mean(report["returns"]))
    out, err = capsys.readouterr()
    assert out.startswith("mean_reward ")
    seconds = r" \.\.\. \d+\.\d s\n"
    compiling = r"compiling \(for the first time: about 10 s on two CPU cores\)"
    stages = ("loading the best policy and cartpole", compiling, "playing 5 episodes")
    assert re.fullmatch(seconds.join((*stages, "")), err)


def test_summary_names_the_next_commands(finished):
    config = train._parse(tiny.flags("x")).config
    evaluation = {"eval/mean_reward": 1.0, "eval/std_reward": 0.0}
    text = summary.text(summary.Result(finished, 512, 1.0, evaluation), config)
    for command in ("jaxrl.evaluate", "--resume", "tensorboard --logdir", str(finished)):
        assert command in text
    assert f"report           {finished / 'report.html'}\n" in text
    assert "best" not in summary.text(summary.Result(finished, 0, None, evaluation), config)


@pytest.mark.parametrize("env", ["mine:Env", "gym:mine:Env-v0"])
def test_suggested_commands_repeat_the_custom_env_flag(finished, env):
    config = replace(train._parse(tiny.flags("x")).config, env=env)
    lines = summary.text(summary.Result(finished, 512, None, {}), config).splitlines()
    for command in ("jaxrl.evaluate", "--resume"):
        assert next(line for line in lines if command in line).endswith(f" --env {env}")
    assert summary.resume_command(finished, config).endswith(f"--resume {finished} --env {env}")


OTHER_SHAPES = {
    "network/hidden/16": "actor/params/MLP_0/Dense_0/kernel is float32[4,8], this configuration",
    "num_envs/16": "collector/env/age is int32[8], this configuration needs int32[16]",
    "network/precision/bfloat16": "network.precision is bfloat16 (was float32)",
    "algo/dqn": "checkpoint has no leaf collector/replay/ring/steps/action",
}


@pytest.mark.parametrize("change", OTHER_SHAPES)
def test_resume_with_changed_shapes_is_refused(change, finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    *path, name, value = change.split("/")
    part = config[path[0]] if path else config
    part[name] = [16] if name == "hidden" else int(value) if value.isdigit() else value
    (folder / "config.json").write_text(json.dumps(config))
    saved = sorted(p.name for p in (folder / "checkpoints").iterdir())
    assert train.main(["--resume", str(folder)]) == 2
    assert OTHER_SHAPES[change] in capsys.readouterr().err
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == saved


def test_wandb_sink_sends_the_same_points(tmp_path, monkeypatch):
    """With a fake client: check names, steps and the run id."""
    sent, opened = [], []

    class Run:
        def log(self, metrics, step):
            sent.append((step, metrics))

        def log_artifact(self, artifact):
            opened.append(artifact)

        def finish(self):
            opened.append("finished")

    class Artifact:
        def __init__(self, name, type):
            self.name, self.files = name, []

        def add_file(self, path):
            self.files.append(path)

    def init(**arguments):
        opened.append(arguments)
        return Run()

    fake = types.ModuleType("wandb")
    fake.init, fake.Artifact = init, Artifact
    fake.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    folder = tiny.run(tmp_path / "run", "--log.wandb", "--log.no-tensorboard")
    assert [step for step, _ in sent] == [128, 256, 384, 512]
    assert sent[-1][1]["rollout/ep_rew_mean"] == tiny.rows(folder)[-1]["rollout/ep_rew_mean"]
    assert len(opened[0]["id"]) == 12 and opened[0]["resume"] == "allow"
    assert opened[-1] == "finished"
    assert opened[-2].name == "run-policy"
    assert opened[-2].files == [str(folder / "policies" / "final.npz")]
    assert not (folder / "tensorboard").exists()


def test_resume_refuses_fewer_epochs_and_changed_settings(finished, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    before = sorted(str(p) for p in folder.rglob("*"))
    assert train.main(["--resume", str(folder), "--epochs", "1"]) == 2
    assert "give a larger" in capsys.readouterr().err
    assert train.main(["--resume", str(folder), "--epochs", "9", "--total-steps", "9999"]) == 2
    assert "not both" in capsys.readouterr().err
    config = json.loads((folder / "config.json").read_text())
    config["ppo"]["learning_rate"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    assert train.main(["--resume", str(folder), "--epochs", "4"]) == 2
    assert "ppo.learning_rate is 0.5 (was 0.002)" in capsys.readouterr().err
    assert sorted(str(p) for p in folder.rglob("*")) == before


def test_run_killed_before_first_checkpoint_restarts(finished, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints")
    assert train.main(["--resume", str(folder)]) == 2  # it had finished: checkpoints were deleted
    assert "no checkpoint in" in capsys.readouterr().err
    (folder / "policies" / "final.npz").unlink()
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text(rows[0] + "\n")
    assert train.main(["--resume", str(folder)]) == 0
    assert "starting from scratch" in capsys.readouterr().out
    assert tiny.rows(folder) == tiny.rows(finished)
    tiny.assert_same_policy(folder, finished)


def test_missing_first_checkpoint_is_tolerated_until_second_is_due(tmp_path):
    """The first save runs in the background and may be slow; the second save waits for it."""
    config = train._parse(tiny.flags(tmp_path, "--epochs", "9")).config  # saved every 2 cycles
    checkpoints = CheckpointManager(tmp_path / "checkpoints")
    found = {}
    for number in range(1, 7):
        rows = "".join(f'{{"step": {128 * i}}}\n' for i in range(1, number + 1))
        (tmp_path / "metrics.jsonl").write_text(rows)
        found[number] = resume.never_saved(config, checkpoints, tmp_path)
    assert found == {1: True, 2: True, 3: True, 4: True, 5: False, 6: False}


def test_resuming_a_finished_run_changes_nothing(finished, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    before = jaxrl.load_policy(folder, "final").info
    capsys.readouterr()
    assert train.main(["--resume", str(folder)]) == 0
    assert "This run has reached its end" in capsys.readouterr().out
    assert jaxrl.load_policy(folder, "final").info == before
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["256", "512"]


def test_resume_with_lstm_and_prioritized_sampling_is_exact(tmp_path):
    # β is scheduled over the length of the run, which differs here: start it at its maximum.
    settings = shlex.split(
        "--network.rnn lstm --network.rnn-size 4 --network.rnn-layers 2 --ppo.bptt-horizon 4 "
        "--ppo.sampling prioritized --ppo.prio-beta0 1.0 --ppo.advantage vtrace --eval.num-envs 0"
    )
    whole = tiny.run(tmp_path / "whole", *settings)
    parts = tiny.run(tmp_path / "parts", *settings, "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(whole)
    tiny.assert_same_policy(parts, whole)


def test_resume_with_state_dependent_exploration_is_exact(tmp_path):
    """The noise matrices are part of the state: the run stops while they are held."""
    settings = shlex.split(
        "--env pendulum --network.sde --network.sde-sample-freq 5 --eval.num-envs 0"
    )
    whole = tiny.run(tmp_path / "whole", *settings)
    parts = tiny.run(tmp_path / "parts", *settings, "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(whole)
    tiny.assert_same_policy(parts, whole)
    assert any("noise_log_std" in name for name in tiny.policy(whole))


def test_teacher_is_used_after_resume(finished, tmp_path, capsys):
    settings = ["--ppo.teacher", str(finished), "--eval.num-envs", "0"]
    folder = tiny.run(tmp_path / "run", *settings, "--epochs", "1")
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    assert all(row["train/teacher_kl"] >= 0 for row in tiny.rows(folder))
    assert train.main(tiny.flags(tmp_path / "other", "--env", "pendulum", *settings)) == 2
    assert "--ppo.teacher" in capsys.readouterr().err


LONG_NAME = "n" * 200


@pytest.mark.parametrize("name", ["spaces and ünïcode 模型", f"{LONG_NAME}/{LONG_NAME}", "link"])
def test_run_folder_may_have_any_path(name, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    monkeypatch.chdir(tmp_path)
    folder = tiny.run(name, "--epochs", "1", "--cycles", "1")
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    assert [row["step"] for row in tiny.rows(tmp_path / name)] == [128, 256]


def test_too_long_folder_names_are_refused(tmp_path, capsys):
    assert train.main(tiny.flags(tmp_path / ("n" * 300))) == 2
    assert "File name too long" in capsys.readouterr().err


def test_deleted_tensorboard_events_do_not_stop_training(finished, tmp_path):
    folder = tmp_path / "run"

    def delete(context):
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)

    jaxrl.fit(train._parse(tiny.flags(folder)).config, callbacks=[delete])
    assert tiny.rows(folder) == tiny.rows(finished)


def test_cycles_do_not_leak_device_arrays(tmp_path):
    """A leak per cycle would fill the device memory in a long run."""
    alive = []
    config = train._parse(tiny.flags(tmp_path / "run", "--epochs", "6")).config
    jaxrl.fit(config, callbacks=[lambda context: alive.append(len(jax.live_arrays()))])
    assert len(alive) == 12 and alive[2:] == 5 * alive[2:4]  # every second cycle is evaluated


def test_training_opens_no_network_connection(tmp_path, monkeypatch):
    connections = []  # asserted at the end: the caller may catch the error

    def refuse(*address, **_):
        connections.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", lambda self, address: refuse(address))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    tiny.run(tmp_path / "run", "--epochs", "1")
    assert not connections


@pytest.mark.parametrize("error", [CompilerBusyError, jax.errors.JaxRuntimeError])
def test_busy_compiler_costs_an_evaluation_but_no_training(error, tmp_path, capsys, monkeypatch):
    real, calls = device.DeviceExecutor.evaluate, []

    def busy_at_first(self, *arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise error("INTERNAL: Failed to launch ptxas")
        return real(self, *arguments)

    monkeypatch.setattr(device.DeviceExecutor, "evaluate", busy_at_first)
    if error is not CompilerBusyError:  # an error of the evaluation itself
        with pytest.raises(error, match="ptxas"):
            tiny.run(tmp_path / "run")
        return
    rows = tiny.rows(tiny.run(tmp_path / "run"))
    assert "this evaluation could not be compiled: INTERNAL: Failed" in capsys.readouterr().out
    assert ["eval/mean_reward" in row for row in rows] == [False, False, False, True]
    assert len(calls) == 2
