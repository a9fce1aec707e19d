"""Forecasts of time and disk, compared with runs."""

import json
from dataclasses import replace

import pytest

from jaxrl import programs, train
from jaxrl.config import TrainConfig
from jaxrl.loggers import run_dir
from jaxrl.programs import memory_estimate
from jaxrl.training import forecast
from tests.helpers import tiny


@pytest.fixture(scope="module")
def program():
    """Two epochs of two cycles."""
    return programs.build(train._parse(tiny.FLAGS).config)


def _write(folder, config: TrainConfig, **changed):
    """Write the log of an earlier run: two cycles of 3 s, one evaluation of 2 s."""
    folder.mkdir(parents=True)
    run_dir.describe(folder, config)
    rows = [
        {"step": 128, "time/cycle_seconds": 3.0, "time/compile_seconds": 10.0},
        {"step": 256, "time/cycle_seconds": 3.0, "time/eval_seconds": 2.0} | changed,
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_time_is_that_of_an_earlier_run_of_the_same_program(program, tmp_path):
    assert "not known" in forecast.time(program, tmp_path)
    assert forecast.compilation(program, tmp_path).startswith("for the first time: about 10 s")
    _write(tmp_path / "other", replace(program.config, num_envs=4))
    assert "not known" in forecast.time(program, tmp_path)
    more = replace(program.config.eval, num_envs=9)
    _write(tmp_path / "more", replace(program.config, eval=more))
    assert "not known" in forecast.time(program, tmp_path)
    # Its seed, length and output may differ: 10 s of compiling, four cycles of 3 s, two evaluations
    # of 2 s.
    other = replace(program.config, seed=3, epochs=1, preset="fast", profile=True)
    other = replace(other, log=replace(other.log, tensorboard=not other.log.tensorboard))
    _write(tmp_path / "run", other)
    assert forecast.compilation(program, tmp_path) == "took 10s last time"
    assert forecast.time(program, tmp_path) == f"about 26s, at the rate of {tmp_path / 'run'}"


def test_disk_forecast_counts_stored_checkpoints(program):
    size = memory_estimate.num_bytes(program.abstract_state())
    each = f"2 checkpoints of {memory_estimate.megabytes(size)}"
    assert each in forecast.disk(program)
    for keep, kept in ((3, 4), ("all", 9)):
        config = replace(program.config, epochs=9)
        config = replace(config, checkpoint=replace(config.checkpoint, keep=keep))
        assert f": {kept} checkpoints" in forecast.disk(replace(program, config=config))
