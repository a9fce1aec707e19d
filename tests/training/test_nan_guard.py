"""When numbers or memory run out: what is said, and what is left to look at."""

import json
import math
import shlex

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, train
from jaxrl.checkpoint import snapshot
from jaxrl.errors import UserError
from jaxrl.programs import device, memory_estimate
from jaxrl.training import fit
from jaxrl.training.run import Member
from jaxrl.utils import device_memory, host_memory
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs")

BREAKS = shlex.split(
    "--env tests.helpers.nan_envs:Breaks --backend None --task.no-random-first-age --epochs 1 "
    "--eval.num-envs 0"
)


def test_an_environment_that_breaks_stops_the_run_and_leaves_its_state(tmp_path, capsys):
    folder = tmp_path / "run"
    assert train.main(tiny.flags(folder, *BREAKS, "--task.on-nan", "stop")) == 2
    message = capsys.readouterr().err
    assert "environment 0 produced non-finite values at step 5, step 4 of its episode" in message
    assert "obs[0] is nan" in message and "(7 more in the same cycle)" in message
    with np.load(folder / "broken" / "environment-0-step-5.npz", allow_pickle=False) as data:
        assert data["before/pipeline_state/steps"] == 4
        np.testing.assert_array_equal(data["before/obs"], [1.0])
        assert np.isnan(data["after/obs"]).all() and data["after/reward"] == 1.0
        assert data["action"].shape == (1,) and data["action"].any()


def test_by_default_it_is_restarted_counted_and_warned_of(tmp_path, capsys):
    folder = tiny.run(tmp_path / "run", *BREAKS)
    rows = tiny.rows(folder)
    # Means over iterations: 8 environments break three times in the 16 steps of two.
    assert [row["rollout/diverged"] for row in rows] == [12.0, 12.0]
    assert not (folder / "broken").exists()
    out = capsys.readouterr().out
    for step in (128, 256):
        assert (
            f"environments produced non-finite values in 24 of 128 steps in the cycle up to step "
            f"{step}, and were reset"
        ) in out


NAN_START = [flag.replace("Breaks", "NanStart") for flag in BREAKS]


def test_a_run_whose_every_step_is_non_finite_does_not_end_well(tmp_path, capsys):
    assert train.main(tiny.flags(tmp_path / "run", *NAN_START)) == 2
    message = capsys.readouterr().err
    assert "non-finite values at every step in the cycle up to step 128" in message


def test_a_reset_that_is_nan_stops_the_run_where_asked_to(tmp_path, capsys):
    assert train.main(tiny.flags(tmp_path / "run", *NAN_START, "--task.on-nan", "stop")) == 2
    message = capsys.readouterr().err
    assert "environment 0 produced non-finite values at step 1" in message
    assert "after its reset, obs[0] is nan" in message


def test_stopping_changes_nothing_where_nothing_breaks(tmp_path):
    plain, careful = tiny.run(tmp_path / "a"), tiny.run(tmp_path / "b", "--task.on-nan", "stop")
    tiny.assert_same_policy(plain, careful)
    assert tiny.rows(plain) == tiny.rows(careful)
    last = tiny.rows(plain, timed=True)[-1]
    assert last["time/peak_memory_mb"] >= last["time/memory_mb"] > 1
    assert last["time/host_memory_mb"] > 1
    assert train.main(["--resume", str(careful), "--epochs", "3"]) == 0


def test_a_run_that_ends_with_non_finite_gradients_says_so(tmp_path, monkeypatch, capsys):
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
    said = capsys.readouterr()
    assert "4 gradient updates of this cycle were non-finite and were skipped" in said.out
    assert "no checkpoint was saved: the last updates were non-finite" in said.out
    assert "diverged at step 512: 4 consecutive non-finite updates" in said.err
    assert (folder / "policies" / "final.npz").exists() and (folder / "checkpoints/512").is_dir()


def test_an_evaluation_that_is_not_finite_is_warned_of(tmp_path, monkeypatch, capsys):
    real = device.DeviceExecutor.evaluate

    def bad(self, params, number):
        played = real(self, params, number)
        nan = np.full_like(played.returns, np.nan)
        return played._replace(returns=nan, nonfinite=np.arange(4) < 3)

    monkeypatch.setattr(device.DeviceExecutor, "evaluate", bad)
    folder = tiny.run(tmp_path / "run")
    said = capsys.readouterr().out
    assert said.count("3 episodes of the evaluation ended in non-finite values") == 2
    assert said.count("the mean return of the evaluation is not finite") == 2
    assert not (folder / "policies" / "best.npz").exists()


def test_a_loss_that_is_nan_does_not_keep_the_state_from_the_disk(tmp_path):
    def member():
        config = train._parse(tiny.flags(tmp_path)).config
        return Member(config, None, tmp_path, [], None, lambda *row: None)

    one, two = member(), member()
    one.average_losses({"train/R_loss": math.nan, "train/R_fit": 2.0}, epoch_ends=False)
    one.recent = [1.0, math.inf]
    snapshot.check_json(one.state_dict(), "metadata")
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    np.testing.assert_array_equal(two.losses, one.losses)
    np.testing.assert_array_equal(two.recent, [1.0, math.nan])


def test_a_report_without_a_number_is_valid_json():
    nan, inf = float("nan"), float("inf")
    report = {"mean": nan, "returns": [1.0, inf], "success": {"mean": [nan, 2]}, "name": "x"}
    assert json.loads(json.dumps(evaluate._nan_to_null(report), allow_nan=False)) == {
        "mean": None,
        "returns": [1.0, None],
        "success": {"mean": [None, 2]},
        "name": "x",
    }


def test_the_most_memory_is_no_less_than_what_is_in_use(monkeypatch):
    """The kernel's two counts can be a page apart."""
    counts = {"VmRSS": 3810.246, "VmHWM": 3810.242}
    monkeypatch.setattr(device_memory, "_of_process", counts.get)
    values = device_memory.in_use()
    assert values["time/peak_memory_mb"] == values["time/memory_mb"] == 3810.246


def test_memory_of_the_device_and_of_the_process_are_two_numbers(monkeypatch):
    class Device:
        def __init__(self, used):
            self.used = used

        def memory_stats(self):
            return {"bytes_in_use": self.used * 2**20, "peak_bytes_in_use": self.used * 2**21}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device(3), Device(7)])
    values = device_memory.in_use()
    assert (values["time/memory_mb"], values["time/peak_memory_mb"]) == (7.0, 14.0)
    assert 20 < values["time/host_memory_mb"] < 1e6


def test_too_little_memory_names_what_is_large_and_how_to_shrink_it(tmp_path, monkeypatch):
    def greedy(self, state, number):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.")

    monkeypatch.setattr(device.DeviceExecutor, "run_cycle", greedy)
    config = train._parse(tiny.flags(tmp_path / "run")).config
    with pytest.raises(UserError, match="Out of memory") as caught:
        jaxrl.fit(config)
    message = str(caught.value)
    assert "rollout/obs float32[8, 8, 4]: lower --num-envs, --ppo.rollout-length" in message
    assert any("step 0" in note for note in caught.value.__notes__)


def test_a_state_larger_than_the_memory_is_refused_before_there_is_a_folder(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(device_memory, "of_all_devices", lambda number: 100)
    assert train.main(tiny.flags(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert "This run needs 0.0 MiB of memory at least; there are 0.0 MiB." in said
    assert "rollout/obs float32[8, 8, 4]: lower --num-envs, --ppo.rollout-length" in said
    assert not list(tmp_path.iterdir())


def test_limits_of_the_process_count_as_memory_of_a_cpu(monkeypatch):
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda kind: (2**20, 2**20))
    monkeypatch.setattr(host_memory, "meminfo", {"SwapTotal": 7}.get)
    assert device_memory.of_device() == 2**20
    assert device_memory.of_all_devices(8) == 2**20 + 7  # CPU devices share one memory


def test_the_largest_array_of_replay_is_named():
    flags = "dqn-catch --devices 1 --offpolicy.buffer-size 1000000"
    program = fit.build(train._parse(shlex.split(flags)).config)
    found = memory_estimate.largest(program)
    assert found[0][0].startswith("replay/") and found[0][2] == "--offpolicy.buffer-size"
    amounts = [memory_estimate.num_bytes(leaf) for _, leaf, _ in found]
    assert amounts == sorted(amounts, reverse=True)
