"""Non-finite values and exhausted memory: errors, warnings and dumped states."""

import json
import math
import shlex

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, programs, train
from jaxrl.checkpoint import snapshot
from jaxrl.errors import UserError
from jaxrl.loggers.sinks import Sinks
from jaxrl.programs import device, memory_estimate
from jaxrl.training.run import Member
from jaxrl.utils import device_memory, host_memory
from tests.helpers import nan_envs, tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

ENV = ("--env", "tests.helpers.nan_envs:Breaks")
BREAKS = [*ENV, *shlex.split("--backend None --task.no-random-first-age --epochs 1")]
UNEVALUATED = ("--eval.num-envs", "0")


# First, since the others can use its programs.
def test_on_nan_stop_does_not_change_a_finite_run(tmp_path, monkeypatch):
    monkeypatch.setattr(nan_envs.Breaks, "first", 1000)
    plain, careful = (
        tiny.run(tmp_path / name, *BREAKS, "--task.on-nan", name) for name in ("restart", "stop")
    )
    tiny.assert_same_policy(plain, careful)
    assert tiny.rows(plain) == tiny.rows(careful)
    last = tiny.rows(plain, timed=True)[-1]
    assert last["rollout/ep_len_mean"] == last["eval/mean_ep_length"] == 7
    assert last["time/peak_memory_mb"] >= last["time/memory_mb"] > 1
    assert last["time/host_memory_mb"] > 1
    assert train.main(["--resume", str(careful), "--epochs", "2", *ENV]) == 0


def test_on_nan_stop_dumps_the_nonfinite_environment_state(tmp_path, capsys):
    folder = tmp_path / "run"
    assert train.main(tiny.flags(folder, *BREAKS, *UNEVALUATED, "--task.on-nan", "stop")) == 2
    message = capsys.readouterr().err
    assert "environment 0 produced non-finite values at step 5, step 4 of its episode" in message
    assert "obs[0] is nan" in message and "(7 more in the same cycle)" in message
    with np.load(folder / "nonfinite" / "environment-0-step-5.npz", allow_pickle=False) as data:
        assert data["before/pipeline_state/steps"] == 4
        np.testing.assert_array_equal(data["before/obs"], [1.0])
        assert np.isnan(data["after/obs"]).all() and data["after/reward"] == 1.0
        assert data["action"].shape == (1,) and data["action"].any()


def test_non_finite_envs_are_reset_and_counted_by_default(tmp_path, capsys):
    folder = tiny.run(tmp_path / "run", *BREAKS, *UNEVALUATED)
    rows = tiny.rows(folder)
    # Mean over two iterations: 8 environments break three times each in their 16 steps.
    assert [row["rollout/diverged"] for row in rows] == [12.0, 12.0]
    assert not (folder / "nonfinite").exists()
    out = capsys.readouterr().out
    for step in (128, 256):
        assert (
            f"environments produced non-finite values in 24 of 128 steps in the cycle up to step "
            f"{step}, and were reset"
        ) in out
    total = "environments produced non-finite values in 48 of 256 steps (rollout/diverged; "
    assert out.rstrip().rpartition("\n\n")[2].count(total) == 1  # in the summary


def test_run_with_only_non_finite_steps_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nan_envs.Breaks, "first", 0)
    assert train.main(tiny.flags(tmp_path / "run", *BREAKS, *UNEVALUATED)) == 2
    message = capsys.readouterr().err
    assert "non-finite values at every step in the cycle up to step 128" in message


def test_nan_reset_stops_the_run_with_on_nan_stop(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nan_envs.Breaks, "first", 0)
    stop = (*UNEVALUATED, "--task.on-nan", "stop")
    assert train.main(tiny.flags(tmp_path / "run", *BREAKS, *stop)) == 2
    message = capsys.readouterr().err
    assert "environment 0 produced non-finite values at step 1" in message
    assert "after its reset, obs[0] is nan" in message


def test_run_ending_with_non_finite_gradients_fails(tmp_path, monkeypatch, capsys):
    real = device.DeviceExecutor.run_cycle

    def bad_at_the_end(self, state, number):
        state, metrics = real(self, state, number)
        if number == 3:
            bad = jax.device_put(np.int32(4), state.learner.skipped_updates.sharding)
            state = state.replace(
                learner=state.learner.replace(skipped_updates=bad, nonfinite_streak=bad.copy())
            )
        return state, metrics

    monkeypatch.setattr(device.DeviceExecutor, "run_cycle", bad_at_the_end)
    folder = tmp_path / "run"
    assert train.main(tiny.flags(folder)) == 2
    captured = capsys.readouterr()
    assert "4 gradient updates of this cycle were non-finite and were skipped" in captured.out
    assert "no checkpoint was saved: the last updates were non-finite" in captured.out
    assert "diverged at step 512: 4 consecutive non-finite updates" in captured.err
    assert (folder / "policies" / "final.npz").exists() and (folder / "checkpoints/512").is_dir()


def test_non_finite_evaluation_is_warned_about(tmp_path, monkeypatch, capsys):
    real = device.DeviceExecutor.evaluate

    def bad(self, params, *others):
        played = real(self, params, *others)
        nan = np.full_like(played.returns, np.nan)
        return played._replace(returns=nan, nonfinite=np.arange(4) < 3)

    monkeypatch.setattr(device.DeviceExecutor, "evaluate", bad)
    folder = tiny.run(tmp_path / "run")
    output = capsys.readouterr().out
    assert output.count("3 episodes of the evaluation ended in non-finite values") == 2
    assert output.count("the mean return of the evaluation is not finite") == 2
    assert not (folder / "policies" / "best.npz").exists()


def test_nan_loss_does_not_prevent_saving(tmp_path):
    def member():
        config = train._parse(tiny.flags(tmp_path)).config
        return Member(config, None, tmp_path, Sinks([], []), None)

    one, two = member(), member()
    one.average_losses({"train/R_loss": math.nan, "train/R_fit": 2.0}, epoch_ends=False)
    one.recent = [1.0, math.inf]
    snapshot.check_json(one.state_dict(), "metadata")
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    np.testing.assert_array_equal(two.losses, one.losses)
    np.testing.assert_array_equal(two.recent, [1.0, math.nan])


def test_non_finite_report_values_become_null():
    nan, inf = float("nan"), float("inf")
    report = {"mean": nan, "returns": [1.0, inf], "success": {"mean": [nan, 2]}, "name": "x"}
    assert json.loads(json.dumps(evaluate._nan_to_null(report), allow_nan=False)) == {
        "mean": None,
        "returns": [1.0, None],
        "success": {"mean": [None, 2]},
        "name": "x",
    }


def test_peak_memory_is_at_least_memory_in_use(monkeypatch):
    """The kernel's two counts can be a page apart."""
    counts = {"VmRSS": 3810.246, "VmHWM": 3810.242}
    monkeypatch.setattr(device_memory, "_of_process", counts.get)
    values = device_memory.in_use()
    assert values["time/peak_memory_mb"] == values["time/memory_mb"] == 3810.246


def test_device_and_host_memory_are_logged_separately(monkeypatch):
    class Device:
        def __init__(self, used):
            self.used = used

        def memory_stats(self):
            return {"bytes_in_use": self.used * 2**20, "peak_bytes_in_use": self.used * 2**21}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device(3), Device(7)])
    values = device_memory.in_use()
    assert (values["time/memory_mb"], values["time/peak_memory_mb"]) == (7.0, 14.0)
    assert 20 < values["time/host_memory_mb"] < 1e6


def test_out_of_memory_error_names_large_arrays_and_flags(tmp_path, monkeypatch):
    def out_of_memory(self, state, number):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.")

    monkeypatch.setattr(device.DeviceExecutor, "run_cycle", out_of_memory)
    config = train._parse(tiny.flags(tmp_path / "run")).config
    with pytest.raises(UserError, match="Out of memory") as caught:
        jaxrl.fit(config)
    message = str(caught.value)
    assert "rollout/obs float32[8, 8, 4]: lower --num-envs, --ppo.rollout-length" in message
    assert any("step 0" in note for note in caught.value.__notes__)


def test_state_too_large_for_memory_is_refused_before_writing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(device_memory, "of_all_devices", lambda number: 100)
    assert train.main(tiny.flags(tmp_path / "run")) == 2
    output = capsys.readouterr().err
    assert "This run needs 0.0 MiB of memory at least; there are 0.0 MiB." in output
    assert "rollout/obs float32[8, 8, 4]: lower --num-envs, --ppo.rollout-length" in output
    assert not list(tmp_path.iterdir())


def test_process_memory_limit_applies_to_cpu_devices(monkeypatch):
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda kind: (2**20, 2**20))
    monkeypatch.setattr(host_memory, "meminfo", {"SwapTotal": 7}.get)
    assert device_memory.of_device() == 2**20
    assert device_memory.of_all_devices(8) == 2**20 + 7  # CPU devices share one memory


def test_memory_estimate_names_the_largest_replay_array():
    flags = "dqn-catch --devices 1 --offpolicy.buffer-size 1000000"
    program = programs.build(train._parse(shlex.split(flags)).config)
    found = memory_estimate.largest(program)
    assert found[0][0].startswith("replay/") and found[0][2] == "--offpolicy.buffer-size"
    amounts = [memory_estimate.num_bytes(leaf) for _, leaf, _ in found]
    assert amounts == sorted(amounts, reverse=True)
