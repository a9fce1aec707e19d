"""Arrays that the CPU exchanges between epochs: no episode reads another clip than its own."""

import jax
import numpy as np
import pytest

from jaxrl import evaluate, programs, train
from jaxrl.policies import load
from jaxrl.programs import device
from jaxrl.rendering.episodes import build_env, record_episodes
from jaxrl.utils import trees
from tests.helpers import tiny

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")

DRILL = "tests.helpers.custom_envs:StreamedDrill"
FLAGS = ("--env", DRILL, "--task.episode-length", "20", "--eval.num-envs", "1", "--cycles", "1")
FLAGS += ("--task.no-random-first-age",)  # so that every episode is counted


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A run of four epochs without interruption."""
    return tiny.run(tmp_path_factory.mktemp("run") / "long", *FLAGS, "--epochs", "4")


def test_each_epoch_trains_on_its_own_set(long):
    rows = tiny.rows(long)
    assert [row["curriculum/first"] for row in rows] == [2, 4, 0, 2]
    mean_clip = [row["rollout/ep_clip"] / row["rollout/ep_len_mean"] for row in rows]
    for mean, first in zip(mean_clip, (0, 2, 4, 0), strict=True):
        assert first < mean < first + 1
    # Evaluations play the set that was trained on: 5 and 8 steps, 10 and 6, 7 and 9, again.
    assert [row["eval/mean_ep_length"] for row in rows] == [6.5, 8.0, 8.0, 6.5]
    assert rows[2]["eval/success_rate_strict"] == 0.0 and rows[1]["eval/success_rate_strict"] == 1.0


def test_no_episode_reads_another_clip_than_its_own(long):
    assert [row["rollout/ep_stale"] for row in tiny.rows(long)] == [0.0] * 4


def test_resume_equals_uninterrupted_run(long, tmp_path):
    folder = tiny.run(tmp_path / "short", *FLAGS, "--epochs", "2")
    assert train.main(["--resume", str(folder), "--env", DRILL, "--epochs", "4"]) == 0
    assert tiny.rows(folder) == tiny.rows(long)
    tiny.assert_same_policy(folder, long)


def test_checkpoints_do_not_hold_the_arrays(long):
    config = train._parse([*tiny.FLAGS, *FLAGS]).config
    state = programs.build(config).abstract_state()
    assert not [name for name in trees.named_leaves(state) if "shared" in name]


def test_episodes_are_restarted_at_an_exchange():
    config = train._parse([*tiny.FLAGS, *FLAGS]).config
    program = programs.build(config)
    executor = device.compile_programs(program)
    state = executor.init_state()
    state, _ = executor.run_cycle(state, 0)
    clips = np.int32([4, 5])
    state = state.replace(curriculum=state.curriculum.replace(clips=jax.numpy.asarray(clips)))
    before = jax.device_get(state.learner.params)
    state = executor.restart(state, 1)
    env = program.env.brax_state(state.collector.env.packed)
    assert set(np.asarray(env.info["number"])) == {4, 5}
    np.testing.assert_array_equal(env.info["time"], 0.0)
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state.learner.params))


def _assert_own_clips(*folders):
    for folder in folders:
        rows = [row for row in tiny.rows(folder) if "rollout/ep_stale" in row]
        assert rows and {row["rollout/ep_stale"] for row in rows} == {0.0}


def test_members_of_a_population_have_their_own_sets(tmp_path):
    folder = tiny.run(tmp_path / "two", *FLAGS, "--epochs", "2", "--num-seeds", "2")
    members = sorted(path.parent for path in folder.glob("*/metrics.jsonl"))
    assert len(members) == 2
    _assert_own_clips(*members)


def test_every_device_has_the_arrays(tmp_path):
    folder = tiny.run(tmp_path / "two", *FLAGS, "--devices", "2", "--eval.num-envs", "2")
    _assert_own_clips(folder)


def test_replay_ends_interrupted_episodes(tmp_path):
    flags = (
        "rrd-quick --devices 1 --num-envs 4 --epochs 3 --cycles 1 --iterations 13 "
        "--network.hidden 4 --network.critic-hidden 4 --offpolicy.train-batches 1 "
        "--offpolicy.batch-size 8 "
        "--rrd.batch-size 8 --rrd.sample-size 4 --offpolicy.buffer-size 200 --offpolicy.warmup 20"
    )
    where = ("--run-dir", str(tmp_path / "run"))
    assert train.main([*flags.split(), *FLAGS, *where]) == 0
    _assert_own_clips(tmp_path / "run")


def test_commands_play_all_clips(long, capsys):
    assert evaluate.main([str(long), "--env", DRILL]) == 0
    table = (long / "evaluation-best.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in table[1:]] == ["a", "b", "c", "d", "e", "f"]
    assert [int(line.split("\t")[1]) for line in table[1:]] == [5, 8, 10, 6, 7, 9]


def test_any_clip_is_drawn(long):
    config = train._parse([*tiny.FLAGS, *FLAGS]).config
    policy = load.load_policy(long)
    (episode,) = record_episodes(policy, config, build_env(config), number=1, clip="e")
    assert episode.name == "e" and len(episode.rewards) == 7
