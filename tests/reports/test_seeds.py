"""Grouping of runs by settings, and aggregation over seeds."""

import numpy as np
import pytest

from jaxrl.config import PPOConfig, presets
from jaxrl.loggers import run_dir
from jaxrl.reports import load_runs, seeds
from jaxrl.reports.load_runs import Curve
from jaxrl.utils import stats
from tests.helpers import run_folders as folders


def _records(tmp_path, **runs):
    return [load_runs.read(folders.make(tmp_path / name, **c)) for name, c in runs.items()]


def test_runs_are_grouped_by_settings_except_the_seed(tmp_path):
    low = {"ppo": PPOConfig(gamma=0.9)}
    records = _records(
        tmp_path, a={"seed": 0}, b=low, c={"seed": 7, "run_dir": tmp_path}, d=low | {"seed": 1}
    )
    found = seeds.groups(records)
    assert [[r.name for r in group.records] for group in found] == [["a", "c"], ["b", "d"]]
    assert len({group.color for group in found}) == 2


def test_groups_are_named_by_their_differences_if_short(tmp_path):
    runs = _records(
        tmp_path, a={}, b={"num_envs": 64}, c={"num_envs": 64, "cycles": 9, "epochs": 9}
    )
    assert [g.label for g in seeds.groups(runs[:1])] == ["cartpole"]
    named = [g.label for g in seeds.groups(runs[:2])]
    assert named == ["cartpole, num_envs 256", "cartpole, num_envs 64"]
    assert [g.label for g in seeds.groups(runs)] == ["a", "b", "c"]
    other = load_runs.read(folders.make(tmp_path / "d", config=presets.get("ant")))
    assert [g.label for g in seeds.groups([runs[0], other])] == ["cartpole", "ant"]


def test_seeds_of_one_program_are_named_by_their_run(tmp_path):
    runs = _records(
        tmp_path, **{"x/seed-0": {"seed": 0}, "x/seed-1": {"seed": 1}}, y={"epochs": 9, "cycles": 9}
    )
    other = load_runs.read(folders.make(tmp_path / "z", num_envs=64))
    (tmp_path / "x" / run_dir.MEMBERS).write_text('["seed-0", "seed-1"]')
    assert [g.label for g in seeds.groups([*runs, other])] == ["x", "y", "z"]


def _curves():
    rng = np.random.default_rng(3)
    return [Curve(np.arange(4.0), rng.normal(size=4)) for _ in range(5)]


def test_aggregate_is_the_iqm_and_its_interval():
    curves = _curves()
    steps, iqm, low, high = seeds.aggregate(curves)
    values = np.stack([curve.values for curve in curves])
    assert steps.tolist() == [0, 1, 2, 3]
    for i in range(4):
        inner = np.sort(values[:, i])[1:-1]  # of five, one is trimmed on each side
        assert iqm[i] == pytest.approx(inner.mean())
        assert low[i] < iqm[i] < high[i]
    np.testing.assert_array_equal([low, high], stats.iqm_interval(values, 500))


def test_aggregate_uses_common_steps_and_ranks_nan_worst():
    curves = _curves()
    curves[0] = Curve(curves[0].steps[:3], curves[0].values[:3])  # was interrupted
    curves[1].values[1] = np.nan
    steps, iqm, low, _ = seeds.aggregate(curves)
    assert steps.tolist() == [0, 1, 2]
    others = np.sort([curve.values[1] for i, curve in enumerate(curves) if i != 1])
    assert iqm[1] == pytest.approx(others[:3].mean()) and np.isnan(low[1])
    assert seeds.aggregate(curves, lower_is_better=True)[1][1] == pytest.approx(others[1:].mean())
    assert (
        seeds.aggregate([Curve(np.array([1.0]), np.ones(1)), curves[2]._replace(steps=np.zeros(4))])
        is None
    )


def test_long_curves_are_downsampled_to_the_same_steps():
    long = [Curve(np.arange(5000.0), np.full(5000, float(i))) for i in range(3)]
    steps, iqm, *_ = seeds.aggregate(long)
    assert len(steps) == 150 and steps[0] == 0 and steps[-1] == 4999
    np.testing.assert_array_equal(iqm, 1.0)


def test_curves_over_time_are_resampled_at_common_times(tmp_path):
    (record,) = _records(tmp_path, a={})
    curve = seeds.over_time(record, "eval/mean_reward", "time/time_elapsed")
    np.testing.assert_allclose(60 * curve.steps, [11, 17, 23])
    later = Curve(curve.steps + 0.1, curve.values)
    one, two = seeds.resample_times([curve, later])
    np.testing.assert_array_equal(one.steps, two.steps)
    # Interpolation of a straight line is exact.
    np.testing.assert_allclose(one.values, 22 + 22 * (60 * one.steps - 11) / 6)
    np.testing.assert_allclose(two.values, 22 + 22 * (60 * (two.steps - 0.1) - 11) / 6)
    apart = Curve(curve.steps + 9, curve.values)
    assert all(len(c.steps) == 0 for c in seeds.resample_times([curve, apart]))
