"""Reading run folders, incomplete and damaged ones included."""

import json
import math

import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.reports import load_runs, pages
from tests.helpers import run_folders as folders


def test_run_is_read_as_logged(tmp_path):
    record = load_runs.read(folders.make(tmp_path / "run", seed=3))
    assert record.step == 600 and record.unit == "environment steps" and record.name == "run"
    assert record.config.seed == 3 and record.command == "python -m jaxrl.train cartpole"
    curve = record.curves["eval/mean_reward"]
    assert curve.steps.tolist() == [200, 400, 600] and curve.values.tolist() == [25, 47, 69]
    assert record.last("eval/mean_reward") == 69 and record.last("eval/nothing") is None


def test_truncated_last_line_is_dropped(tmp_path):
    folder = folders.make(tmp_path / "run")
    log = folder / "metrics.jsonl"
    log.write_text(log.read_text()[:-20])
    assert [row["step"] for row in load_runs.read(folder).rows] == [100, 200, 300, 400, 500]


def test_non_finite_values_are_nan(tmp_path):
    rows = folders.points(3)
    rows[1]["train/loss"] = math.nan
    rows[2]["train/loss"] = None
    record = load_runs.read(folders.make(tmp_path / "run", rows))
    np.testing.assert_array_equal(record.curves["train/loss"].values, [1.0, np.nan, np.nan])
    assert record.last("train/loss") == 1.0


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 3, "a"',
        b'{"step": 3, "a\xff": 1}',
        b"\x00\x00\x00",
        b"",
        b"[1, 2]",
        b'{"a": 1}',
        b'{"step": 3, "a": "much"}',
        b'{"step": NaN}',
        b'{"step": null}',
        b'{"step": 1' + b"0" * 400 + b"}",
        b"[" * 100_000,
    ],
)
def test_damaged_lines_are_dropped_and_counted(tmp_path, line):
    folder = folders.make(tmp_path / "run")
    log, whole = folder / "metrics.jsonl", load_runs.read(folder)
    assert whole.remarks == []
    lines = log.read_bytes().splitlines()
    log.write_bytes(b"\n".join([*lines[:2], line, *lines[2:]]) + b"\n")
    record = load_runs.read(folder)
    assert record.rows == whole.rows
    assert record.remarks == [f"1 damaged row of {log} dropped"]
    lines[2] = line  # in place of a row: counted once, not also as missing
    log.write_bytes(b"\n".join(lines) + b"\n")
    assert load_runs.read(folder).remarks == record.remarks


def test_missing_rows_are_counted(tmp_path):
    rows = folders.points(9)
    folder = folders.make(tmp_path / "run", rows[:3] + rows[5:])
    file = folder / "metrics.jsonl"
    remark = f"2 rows missing from {file}, the first at step 400"
    assert load_runs.read(folder).remarks == [remark]
    assert pages.write([folder], tmp_path / "page.html") == [f"warning: {remark}"]
    assert f"warning: {remark}" in (tmp_path / "page.html").read_text()
    beginning = folders.make(tmp_path / "beginning", rows[2:])
    assert "2 rows missing" in load_runs.read(beginning).remarks[0]


def test_paths_that_are_not_runs_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    binary = folders.make(tmp_path / "binary")
    (binary / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    for path, message in {
        "nothing": "does not exist",
        "file": "but a file",
        "empty": "no config",
    }.items():
        with pytest.raises(UserError, match=message):
            load_runs.find([tmp_path / path])
    assert load_runs.read(binary).remarks == [
        f"1 damaged row of {binary / 'metrics.jsonl'} dropped"
    ]
    (binary / "config.json").unlink()
    with pytest.raises(UserError, match="no config"):
        load_runs.read(binary)


def test_seeds_are_found_in_numeric_order(tmp_path):
    for seed in (10, 2, 0):
        folders.make(tmp_path / "run" / f"seed-{seed}", seed=seed)
    (tmp_path / "run" / "config.json").write_text("{}")  # a folder of seeds may have its own config
    (tmp_path / "run" / "notes").mkdir()
    (tmp_path / "run" / "broken").mkdir()
    (tmp_path / "run" / "broken" / "metrics.jsonl").write_text("")  # without config: not a run
    found = load_runs.find([tmp_path / "run"])
    assert [path.name for path in found] == ["seed-0", "seed-2", "seed-10"]
    (tmp_path / "run" / "metrics.jsonl").write_text("{}")  # of all seeds together: not a run
    alone = folders.make(tmp_path / "alone")
    assert load_runs.find([tmp_path]) == [alone, *found]
    assert load_runs.find([alone, tmp_path / "run"]) == [alone, *found]


def test_run_without_a_log_can_be_read(tmp_path):
    folder = folders.make(tmp_path / "run", [])
    (folder / "metrics.jsonl").unlink()
    (folder / "provenance.json").write_text("{")
    (path,) = load_runs.find([folder])
    record = load_runs.read(path)
    assert record.rows == [] and record.step == 0 and record.provenance == {}


def test_state_bytes_are_read_from_the_newest_checkpoint(tmp_path):
    def leaf(path, shape, dtype="float32"):
        return {"path": path, "stored_shape": shape, "stored_dtype": dtype}

    leaves = [leaf("learner/params/a", [10, 5]), leaf("learner/params/b", [], "uint8")]
    leaves += [leaf("collector/replay", [1000], "float64"), leaf("key", [2], "uint32")]
    for name, stored in (("900", leaves[:1]), ("1000", leaves), ("1100.tmp", [])):
        place = tmp_path / "checkpoints" / name
        place.mkdir(parents=True)
        (place / "manifest.json").write_text(json.dumps({"body": {"leaves": stored}}))
    found = load_runs.state_bytes(tmp_path)
    assert found == {"learner/params": 201, "collector/replay": 8000, "key": 8}
    (tmp_path / "checkpoints" / "1000" / "manifest.json").write_text('{"body": {"leaves": [1]}}')
    assert load_runs.state_bytes(tmp_path) == {}
    assert load_runs.state_bytes(tmp_path / "checkpoints") == {}
