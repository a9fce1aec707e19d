"""Learning phases of pick-and-place, on curves with known phases."""

import numpy as np
import pytest

from jaxrl.config import PickConfig, TrainConfig
from jaxrl.envs.tasks.pick_place import phases
from jaxrl.reports import plots
from tests.helpers import run_folders as folders

NAMES = ["initialisation", "discovery", "skill", "optimisation", "convergence"]
SUCCESSES = [0.0, 0.0, 0.0, 0.04, 0.05, 0.3, 0.5, 0.94, 0.95, 0.99]
GRASPS = [0.0, 0.09, 0.1, 0.5, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0]


def _config(grasp_reward):
    return TrainConfig(env="pick_place", pick=PickConfig(grasp_reward=grasp_reward))


def _phases(successes, grasps=None, steps=None):
    steps = 10.0 * np.arange(1, len(successes) + 1) if steps is None else steps
    grasps = np.array(successes if grasps is None else grasps)
    return [tuple(p)[:3] for p in phases.split(np.array(steps), grasps, np.array(successes))]


def test_phase_ends_where_its_threshold_is_reached():
    ends = [30.0, 50.0, 70.0, 90.0, 100.0]
    starts = [0.0, *ends[:-1]]
    assert _phases(SUCCESSES, GRASPS) == list(zip(NAMES, starts, ends, strict=True))


@pytest.mark.parametrize("reached", range(1, 6))
def test_unreached_phases_are_omitted(reached):
    upto = [2, 4, 6, 8, 10][reached - 1]
    found = _phases(SUCCESSES[:upto], GRASPS[:upto])
    assert [name for name, *_ in found] == NAMES[:reached]
    assert found[-1][2] == 10.0 * upto


def test_a_drop_does_not_return_to_an_earlier_phase():
    found = _phases([0.0, 0.6, 0.1, 0.0, 0.96, 0.2])
    assert found == [
        ("initialisation", 0.0, 20.0),
        ("optimisation", 20.0, 50.0),  # phases passed within one row are omitted
        ("convergence", 50.0, 60.0),
    ]


def test_success_is_used_where_grasping_has_no_reward():
    rows = folders.picking([0.0, 0.1, 0.2], [0.0, 0.0, 0.0])
    report = phases.learning_phases(_config(0.0), rows)
    assert [p.name for p in report.phases] == ["initialisation", "skill"]


def test_grasp_rate_is_computed_from_its_reward():
    rows = folders.picking(SUCCESSES, GRASPS)
    report = phases.learning_phases(_config(2.0), rows)
    assert [p.end for p in report.phases] == [3000.0, 5000.0, 7000.0, 9000.0, 10000.0]
    np.testing.assert_allclose(report.terms["success"], np.array(SUCCESSES) / 0.99)
    assert phases.learning_phases(_config(20.0), rows).phases[0].end == 5000.0  # 8 %, 9 %, ...


def test_runs_without_reward_terms_have_no_phases(tmp_path):
    assert phases.learning_phases(_config(2.0), folders.points()) is None
    other = folders.make(tmp_path / "run")
    assert plots.learning_phases(other, _config(2.0)) is None
    assert not (other / "plots").exists()


def test_rows_without_finished_episodes_are_omitted():
    rows = [{"step": 500}, *folders.picking(SUCCESSES, GRASPS)]
    rows.insert(3, rows[3] | {"step": 2500, phases.SUCCESS: float("nan")})
    assert len(phases.learning_phases(_config(2.0), rows).steps) == len(SUCCESSES)


def test_plot_shows_all_phases(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    shaded = []
    draw = Axes.axvspan
    monkeypatch.setattr(
        Axes, "axvspan", lambda self, a, b, **k: shaded.append((a, b)) or draw(self, a, b, **k)
    )
    folder = folders.make(tmp_path / "run", folders.picking(SUCCESSES, GRASPS))
    path = plots.learning_phases(folder, _config(2.0))
    assert path == folder / "plots" / "phases.png" and path.stat().st_size > 10_000
    expected = [(0, 3000), (3000, 5000), (5000, 7000), (7000, 9000), (9000, 10000)]
    assert shaded == expected * 2  # above and below
