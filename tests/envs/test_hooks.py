"""Optional methods of an environment are looked up in one place, and only if they can matter."""

from jaxrl.config import TrainConfig
from jaxrl.envs.hooks import Hooks, TrialSchedule
from tests.helpers import custom_envs


class Unbuilt:
    """An environment that must not be built."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was looked up")


def test_environments_without_trials_are_not_built():
    for hooks in (Hooks(), Hooks(Unbuilt()), Hooks(Unbuilt(), has_curriculum=True)):
        assert hooks.trial_schedule == TrialSchedule(every=0)
        assert hooks.shared_arrays is hooks.all_trials is hooks.trial_report is None
    assert Hooks(Unbuilt(), has_trials=True).update_curriculum is None


def test_trials_follow_the_schedule_of_their_environment():
    drill = Hooks(custom_envs.Drill(every=3), has_curriculum=True, has_trials=True)
    assert drill.trial_schedule == TrialSchedule(every=3, deterministic=True)
    assert drill.shared_arrays is None and drill.trial_report is not None
    # Without a schedule of its own, and without a curriculum that follows the trials.
    assert Hooks(_Follower(), True, True).trial_schedule == TrialSchedule()
    assert Hooks(_Follower(), False, True).trial_schedule.every == 0


def test_what_an_environment_lacks_is_empty():
    hooks, config = Hooks(_Follower(), has_trials=True), TrainConfig()
    assert hooks.trial_names == () and hooks.trial_criteria == {}
    assert hooks.trial_conditions(config) == [("", "trials", config)]
    assert hooks.trial_poses is hooks.demonstrations is None
    named = Hooks(custom_envs.Drill(), has_trials=True)
    assert named.trial_names == ("still", "slow", "fast")
    assert Hooks(custom_envs.Drill()).trial_names == ()


class _Follower:
    def update_curriculum_from_trials(self, curriculum, episodes):
        return curriculum, {}
