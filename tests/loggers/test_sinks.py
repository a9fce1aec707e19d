"""Log sinks: damaged logs, non-finite values, full disks and clock changes."""

import contextlib
import json
import math
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from jaxrl.config import TrainConfig
from jaxrl.evaluation.episodes import Episodes
from jaxrl.loggers import run_dir as folders
from jaxrl.loggers import sinks
from jaxrl.loggers.eval_log import EvalLog


def resumed(path, at):
    """Open the log of a run that has a row every 10 steps and resumes at a step."""
    with contextlib.ExitStack() as stack:
        sink = sinks.jsonl(path, stack, at, 10)
        sink(at + 10, {"x": 2.0})
        assert sink.contents() == path.read_text()
    return [json.loads(line)["step"] for line in path.read_text().splitlines()], sink.remarks


def rows(*steps):
    return "".join(json.dumps({"step": step, "x": 1.0}) + "\n" for step in steps).encode()


@pytest.mark.parametrize("damage", [b'{"step": 20, "\xff": 1}\n', b"[1]\n", b'{"x": 1}\n', b"\n"])
def test_damaged_rows_are_dropped_on_resume_and_backed_up(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    data = rows(10) + damage + rows(30, 40)
    path.write_bytes(data)
    steps, remarks = resumed(path, 30)
    assert steps == [10, 30, 40] and remarks == [f"1 damaged row of {path} dropped"]
    assert (tmp_path / "metrics.jsonl.damaged-1").read_bytes() == data
    assert resumed(path, 40)[1] == [f"1 row missing from {path}, the first at step 20"]


def test_missing_rows_are_reported_on_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(rows(10, 20))
    assert resumed(path, 20) == ([10, 20, 30], [])
    path.write_bytes(rows(10, 40, 50) + b'{"step": 6')
    steps, remarks = resumed(path, 50)
    assert steps == [10, 40, 50, 60]
    assert remarks == [f"2 rows missing from {path}, the first at step 20"]
    path.unlink()
    assert resumed(path, 20)[1] == [f"2 rows missing from {path}, the first at step 10"]


def test_tensorboard_sink_does_not_import_pytorch(tmp_path, monkeypatch):
    """tensorboardX would import an installed PyTorch at every start of a run."""
    (tmp_path / "torch.py").write_text("class Tensor: pass")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboardX"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with contextlib.ExitStack() as stack:
        sinks.tensorboard(tmp_path / "events", stack, None)(1, {"train/loss": 0.5})
    assert "torch" not in sys.modules and any((tmp_path / "events").iterdir())


def test_steps_beyond_int32_are_logged_exactly(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with contextlib.ExitStack() as stack:
        for sink in sinks.open_sinks(TrainConfig(), tmp_path, stack, None).cycle:
            sink(2**40, {"train/loss": 0.5})
    assert sinks.read_jsonl(tmp_path / "metrics.jsonl") == [{"step": 2**40, "train/loss": 0.5}]
    (events,) = (tmp_path / "tensorboard").iterdir()
    points = EventAccumulator(str(events)).Reload().Scalars("train/loss")
    assert [point.step for point in points] == [2**40]
    record = EvalLog(tmp_path / "evaluations.npz", None)
    record.add(2**40, Episodes(np.ones(2), np.ones(2, int), None))
    assert np.load(tmp_path / "evaluations.npz")["timesteps"] == [2**40]


def test_non_finite_values_are_null_and_read_as_nan(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for resumed_at in (None, 1):  # the second rewrites the first's row
        with contextlib.ExitStack() as stack:
            sinks.jsonl(path, stack, resumed_at)(1 + bool(resumed_at), {"a": math.nan, "b": 1.0})
    assert path.read_text().splitlines() == [
        f'{{"step": {step}, "a": null, "b": 1.0}}' for step in (1, 2)
    ]
    rows = sinks.read_jsonl(path)
    assert all(math.isnan(row["a"]) and row["b"] == 1.0 for row in rows)


@contextlib.contextmanager
def full_disk():
    """Let no file grow beyond a few bytes, as if the disk was full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_disables_tensorboard_with_one_warning(tmp_path, capsys):
    """Otherwise tensorboardX's thread would end, its queue fill up and the next write block."""
    with contextlib.ExitStack() as stack:
        sink = sinks.tensorboard(tmp_path / "events", stack, None)
        with full_disk():
            for step in range(30):
                sink(step, {"train/loss": 0.5})
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "File too large; metrics.jsonl has the same values" in err


def test_full_disk_error_names_the_log_file(tmp_path):
    with contextlib.ExitStack() as stack:
        sink = sinks.jsonl(tmp_path / "metrics.jsonl", stack, None)
        with full_disk(), pytest.raises(OSError, match="File too large.*metrics.jsonl"):
            sink(1, {"train/loss": 0.5})


def test_event_files_stay_ordered_with_a_backwards_clock(tmp_path, monkeypatch):
    """Sorted by name, event files are in the order of the resumes."""
    now = iter(range(1_800_000_000, 0, -10_000_000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    for resumed_at in (None, 10, 10):
        with contextlib.ExitStack() as stack:
            sink = sinks.tensorboard(tmp_path, stack, resumed_at)
            for step in range(12):
                sink((resumed_at or 0) + step, {"train/loss": 0.5})
    names = sorted(path.name.split(".") for path in tmp_path.iterdir())
    assert [int(name[3]) for name in names] == [1_800_000_000 + i for i in range(3)]
    assert [name[-1] for name in names[1:]] == ["10", "10"] != names[0][-1]


def test_runs_started_in_the_same_second_get_distinct_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    # As if each checked for the folder before any of them created it.
    monkeypatch.setattr(Path, "exists", lambda path: False)
    made = [folders.create(TrainConfig()).name for _ in range(3)]
    assert made == ["custom-s0-now", "custom-s0-now-2", "custom-s0-now-3"]
