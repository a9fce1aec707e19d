"""Environments on the host: what is collected, how it is learnt from, what is refused."""

import dataclasses
import shlex

import jax
import numpy as np
import pytest

from jaxrl import config_checks, evaluate, presets, train
from jaxrl.config import NetworkConfig
from jaxrl.envs import host
from jaxrl.errors import UserError
from jaxrl.runtime import hosted, program
from tests.runtime import tiny

LSTM = NetworkConfig((4,), (4,), memory="lstm", memory_size=4)


def _program(name, **changes):
    config = presets.get("gym-cartpole")
    ppo = dataclasses.replace(
        config.ppo, rollout_length=8, bptt_horizon=4, num_minibatches=2, update_epochs=1
    )
    config = dataclasses.replace(
        config,
        env=f"gym:tests.runtime.toys:{name}",
        num_envs=4,
        iterations=1,
        devices=1,
        network=LSTM,
        ppo=ppo,
        **changes,
    )
    return program.build(config)


@pytest.fixture(scope="module")
def cut():
    """Three rollouts of two groups of two, episodes cut after three steps."""
    programs = hosted.HostPrograms(_program("Cut-v0"))
    state = programs.first_state()
    params = programs.program.algorithm.policy_params(state.learner)
    return programs, state, [programs._collect(params, turn) for turn in range(2)]


def test_rollouts_join_time_and_groups(cut):
    _, _, (first, second) = cut
    assert first.obs.shape == (8, 4, 1) and first.carry[0].shape == (2, 4, 4)
    steps = np.arange(16) % 3
    obs = np.concatenate([first.obs, second.obs])[..., 0]
    np.testing.assert_array_equal(obs, np.repeat(steps[:, None], 4, axis=1))
    next_obs = np.concatenate([first.next_obs, second.next_obs])[..., 0]
    np.testing.assert_array_equal(next_obs, obs + 1)  # the true successor, also at the cut
    reward = np.concatenate([first.reward, second.reward])
    np.testing.assert_array_equal(reward, next_obs)
    truncated = np.concatenate([first.truncated, second.truncated])
    np.testing.assert_array_equal(truncated, next_obs == 3)
    assert not first.terminated.any()
    assert len(np.unique(first.action[..., 0])) == 32  # every row its own noise


def test_statistics_are_of_whole_episodes(cut):
    _, _, (first, second) = cut
    for one, ended in ((first, 8), (second, 12)):
        assert one.episodes["rollout/ep_rew_mean"].count == ended
        assert one.episodes["rollout/ep_rew_mean"].total == 6 * ended
        assert one.episodes["rollout/ep_len_mean"].total == 3 * ended


def test_memory_is_kept_before_segments_and_emptied_at_endings(cut):
    _, _, (first, second) = cut
    cell = np.concatenate([first.carry[0], second.carry[0]])  # before steps 0, 4, 8 and 12
    assert not cell[0].any() and not cell[3].any()  # at the beginning, and twelve is 4 · 3
    assert cell[2].any(axis=-1).all()  # two steps into an episode; the first one shows a zero


def test_learning_agrees_with_acting(cut):
    programs, state, (first, _) = cut
    still = state.learner.replace(learning_rate=state.learner.learning_rate * 0)
    learn = programs._learning.result()
    hyper = {**state.learner.hyper, "learning_rate": np.float32(0)}
    copied = jax.tree.map(jax.numpy.copy, state.replace(learner=still.replace(hyper=hyper)))
    _, metrics = learn(copied, first)
    assert float(metrics["train/approx_kl"].total) < 1e-11


def test_terminations_are_told_from_cuts():
    env = host.build("gym:tests.runtime.toys:Ends-v0", 2, 1)
    group = env.group(2, 0)
    steps = [group.step(np.zeros((2, 2))) for _ in range(5)]
    assert [bool(s.terminated.all()) for s in steps] == [False, False, False, True, False]
    assert not any(s.truncated.any() for s in steps)
    assert steps[3].next_obs.tolist() == [[4], [4]] and group.obs.tolist() == [[1], [1]]
    np.testing.assert_array_equal(
        group._to_env(np.array([[-1.0, 1.0], [0.0, 5.0]])), [[0, 20], [2, 20]]
    )
    group.close()


def test_a_run_trains_resumes_and_is_evaluated(tmp_path, capsys):
    folder = tmp_path / "run"
    flags = shlex.split(
        "gym-cartpole --devices 1 --num-envs 8 --epochs 1 --cycles 1 --iterations 2 "
        "--ppo.rollout-length 16 --ppo.num-minibatches 2 --eval.num-envs 2"
    )
    assert train.main([*flags, "--run-dir", str(folder)]) == 0
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    assert [row["step"] for row in tiny.rows(folder)] == [256, 512]
    assert evaluate.main([str(folder), "--episodes", "2"]) == 0
    assert "mean_reward" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env": "gym:NoSuch-v9"}, "cannot make"),
        ({"env": "gym:Blackjack-v1"}, "observes"),
    ],
)
def test_what_gymnasium_or_we_cannot_do_is_named(changes, words):
    with pytest.raises(UserError, match=words):
        host.build(changes["env"], 2, 1)


def test_settings_without_meaning_are_refused():
    config = presets.get("gym-cartpole")
    task = dataclasses.replace(config.task, episode_length=5, async_factor=3, action_repeat=2)
    problems = config_checks.validate(dataclasses.replace(config, task=task, devices=2), 2)
    text = " ".join(problems)
    for words in ("use 30 or 33", "--devices 1", "--task.episode-length", "--task.action-repeat"):
        assert words in text
