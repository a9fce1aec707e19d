"""Curricula: failed clips are sampled more often, and start states widen with success."""

import jax
import numpy as np
import pytest

from jaxrl import train
from jaxrl.config import TrainConfig
from jaxrl.envs.hooks import TrialSchedule
from jaxrl.errors import UserError
from jaxrl.motion import clip_sampling
from jaxrl.programs import DeviceProgram, device
from jaxrl.programs.device import compile_programs
from jaxrl.training import curriculum
from jaxrl.types import TrainState
from jaxrl.utils import sharding
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

DRILL = "tests.helpers.custom_envs:Drill"
# The training time limit is below the longest clip: it must not truncate trials.
DRILL_FLAGS = ("--env", DRILL, "--task.episode-length", "8", "--eval.num-envs", "1")


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A run of three epochs without interruption."""
    return tiny.run(tmp_path_factory.mktemp("run") / "long", *DRILL_FLAGS, "--epochs", "3")


def test_failed_clips_gain_weight_and_weights_are_logged(long):
    rows = [row for row in tiny.rows(long, timed=True) if "curriculum/max_weight" in row]
    assert [row["time/cycle"] for row in rows] == [2, 4, 6]  # at the ends of epochs
    for row in rows:
        assert row["curriculum/failed_clips"] == 1  # the fast one always, the others never
        assert row["curriculum/max_weight"] == pytest.approx(0.3 / 3 + 0.7)
        assert row["eval/success_rate_strict"] == pytest.approx(2 / 3)
        assert row["eval/success_rate_zero"] == pytest.approx(2 / 3)
        assert row["eval/mean_ep_length"] == pytest.approx((5 + 8 + 10) / 3)


def test_training_samples_clips_by_the_new_weights(long):
    """The mean clip index per step is about 1 at first and near 1.8 with the new weights."""
    clip_index = [row["rollout/ep_clip"] / row["rollout/ep_len_mean"] for row in tiny.rows(long)]
    assert max(clip_index[:2]) < 1.4 < np.mean(clip_index[2:])


def test_resume_equals_uninterrupted_run(long, tmp_path):
    folder = tiny.run(tmp_path / "short", *DRILL_FLAGS, "--epochs", "1")
    assert train.main(["--resume", str(folder), "--env", DRILL, "--epochs", "3"]) == 0
    assert tiny.rows(folder) == tiny.rows(long)
    tiny.assert_same_policy(folder, long)


def test_evaluation_settings_do_not_change_training(long, tmp_path, monkeypatch):
    """Resampling plays its own trials, even without evaluations."""
    monkeypatch.setattr(device, "compile_programs", compile_programs)  # compile again, not shared
    folder = tiny.run(tmp_path / "other", *DRILL_FLAGS, "--eval.num-envs", "0", "--epochs", "2")

    def trained(folder):
        rows = tiny.rows(folder)[:4]
        return [{k: v for k, v in row.items() if not k.startswith("eval/")} for row in rows]

    assert "curriculum/max_weight" in trained(folder)[1]
    assert trained(folder) == trained(long)


def test_resampling_can_be_disabled(tmp_path):
    folder = tiny.run(tmp_path / "even", *DRILL_FLAGS, "--env-args", "every=0", "--epochs", "1")
    assert not [name for name in tiny.rows(folder)[-1] if name.startswith("curriculum/")]


WIDENING = "tests.helpers.custom_envs:Widening"


@pytest.fixture(scope="module")
def widened(tmp_path_factory):
    """A run whose start states widen with training success."""
    folder = tmp_path_factory.mktemp("run") / "wide"
    return tiny.run(folder, "--env", WIDENING, "--task.episode-length", "4", "--epochs", "3")


def test_level_rises_with_training_success_each_cycle(widened):
    rows = tiny.rows(widened)
    levels = [row["curriculum/level"] for row in rows]
    assert levels == [0.375, 0.5, 0.625, 0.75, 0.875, 1.0]
    reward = [row["rollout/ep_rew_mean"] / 4 for row in rows]
    assert reward[0] == 0.25 and reward == sorted(reward) and reward[-1] > 0.8


def test_evaluation_uses_the_full_start_distribution(widened):
    assert {row["eval/mean_reward"] for row in tiny.rows(widened) if "eval/mean_reward" in row} == {
        4.0
    }


def test_resume_restores_the_level(widened, tmp_path):
    flags = ("--env", WIDENING, "--task.episode-length", "4")
    folder = tiny.run(tmp_path / "short", *flags, "--epochs", "1")
    assert train.main(["--resume", str(folder), "--env", WIDENING, "--epochs", "3"]) == 0
    assert tiny.rows(folder) == tiny.rows(widened)


@pytest.mark.parametrize("interval, due", [(0, []), (1, [3, 6, 9]), (2, [6])])
def test_resampling_is_due_at_epoch_ends(interval, due):
    config, schedule = TrainConfig(epochs=4, cycles=3), TrialSchedule(every=interval)
    assert [cycles for cycles in range(1, 11) if schedule.is_due(config, cycles)] == due


def _updated(returned):
    """Update a curriculum on two devices with an environment that returns `returned`."""
    mesh = sharding.make_mesh(2)
    first = jax.device_put(clip_sampling.init(3), sharding.replicated(mesh))
    state = TrainState(*4 * [None], first)
    program = DeviceProgram(None, mesh, env=None, algorithm=None)

    def update(*_):
        return returned, {"count": np.int64(2)}

    return first, curriculum.updated(program, state, update, [None])


def test_update_preserves_sharding_and_dtype():
    returned = clip_sampling.Resampling([1, 0, 0], np.int64(1), np.float64([0.5, 0.25, 0.25]))
    returned = returned.replace(failures=np.asarray(returned.failures))
    before, (after, (values,)) = _updated(returned)
    for old, new, given in zip(
        *map(jax.tree.leaves, (before, after.curriculum, returned)), strict=True
    ):
        assert new.dtype == old.dtype and new.sharding == old.sharding and new.committed
        np.testing.assert_array_equal(new, given)
    assert values == {"curriculum/count": 2.0} and type(values["curriculum/count"]) is float


def test_changed_shape_or_structure_is_refused():
    with pytest.raises(UserError, match=r"\(3,\) of its curriculum into one \(4,\)"):
        _updated(clip_sampling.init(4))
    with pytest.raises(UserError, match="must return a curriculum of the same structure"):
        _updated(np.zeros(3))
