"""Gymnasium environments: rollouts, training, non-finite values and refused settings."""

import contextlib
import dataclasses
import multiprocessing
import os
import shlex
import signal
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxrl import evaluate, programs, train
from jaxrl.config import NetworkConfig, env_names, presets, validate
from jaxrl.envs.gymnasium import env as gym_env
from jaxrl.envs.gymnasium import workers
from jaxrl.errors import UserError
from jaxrl.programs import gymnasium
from jaxrl.training import nan_guard
from tests.helpers import tiny, toys

pytestmark = pytest.mark.usefixtures("shared_learning", "forked_workers", "no_plots")

LSTM = NetworkConfig((4,), (4,), rnn="lstm", rnn_size=4)


def _program(name, **changes):
    config = presets.get("gym-cartpole")
    ppo = dataclasses.replace(
        config.ppo, rollout_length=8, bptt_horizon=4, num_minibatches=2, update_epochs=1
    )
    config = dataclasses.replace(
        config,
        env=f"gym:tests.helpers.toys:{name}",
        num_envs=4,
        iterations=1,
        devices=1,
        network=LSTM,
        ppo=ppo,
        **changes,
    )
    return programs.build(config)


CARTPOLE = dataclasses.replace(
    presets.get("gym-cartpole"),
    num_envs=8,
    network=NetworkConfig((4,), (4,)),
    ppo=dataclasses.replace(presets.get("gym-cartpole").ppo, rollout_length=4, num_minibatches=1),
)


@pytest.fixture(scope="module")
def shared_learning():
    """Compile learning once for a run and its continuation."""
    compiled, compile_now = {}, gymnasium.GymnasiumExecutor._compile

    def compile_once(executor):
        config = executor.program.config
        settings = repr(dataclasses.replace(config, epochs=1, run_dir=None))
        if settings not in compiled:
            compiled[settings] = compile_now(executor)
        return compiled[settings]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gymnasium.GymnasiumExecutor, "_compile", compile_once)
        yield


@pytest.fixture(scope="module")
def forked_workers():
    """Fork the environments' processes from one that has imported what they need.

    Otherwise each imports it: see `test_env_workers_ignore_signals`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([workers.__name__, toys.__name__, "pytest"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "multiprocessing", SimpleNamespace(get_context=lambda _: context))
        yield


@pytest.fixture(scope="module")
def rollouts():
    """Two rollouts of two groups of two environments, with truncation after three steps."""
    executor = gymnasium.GymnasiumExecutor(_program("Cut-v0"))
    state = executor.init_state()
    params = executor.program.algorithm.policy_params(state.learner)
    return executor, state, [executor.collect(params, number) for number in range(2)]


def test_training_and_evaluation_seeds_are_distinct():
    training = {gym_env._seed(seed, group, 0) for seed in (0, 1) for group in range(4)}
    evaluation = {gym_env._seed(seed, cycle) for seed in (0, 1) for cycle in range(4)}
    by_command = {gym_env._seed(seed) for seed in (0, 1)}
    assert len(training | evaluation | by_command) == 8 + 8 + 2


def test_rollouts_concatenate_time_and_groups(rollouts):
    _, _, (first, second) = rollouts
    assert first.obs.shape == (8, 4, 1) and first.carry[0].shape == (2, 4, 4)
    steps = np.arange(16) % 3
    obs = np.concatenate([first.obs, second.obs])[..., 0]
    np.testing.assert_array_equal(obs, np.repeat(steps[:, None], 4, axis=1))
    next_obs = np.concatenate([first.next_obs, second.next_obs])[..., 0]
    np.testing.assert_array_equal(next_obs, obs + 1)  # the true successor, also at truncation
    reward = np.concatenate([first.reward, second.reward])
    np.testing.assert_array_equal(reward, next_obs)
    truncated = np.concatenate([first.truncated, second.truncated])
    np.testing.assert_array_equal(truncated, next_obs == 3)
    assert not first.terminated.any()
    assert len(np.unique(first.action[..., 0])) == 32  # independent noise per row


def test_rows_of_a_device_are_together_and_seeded_by_their_number(monkeypatch):
    """Two devices step the same episodes as one, of which each has half of every group."""
    monkeypatch.setattr(gymnasium.GymnasiumExecutor, "_compile", lambda _: None)  # learns nothing

    def collected(devices):
        program = programs.build(dataclasses.replace(CARTPOLE, devices=devices))
        with contextlib.closing(gymnasium.GymnasiumExecutor(program)) as executor:
            assert [len(group.workers) for group in executor.groups] == [devices] * 2
            params = program.algorithm.policy_params(executor.init_state().learner)
            rollout = executor.collect(params, 0)
        assert rollout.episodes["rollout/diverged"].count.sum() == 1
        return jax.device_get(rollout)

    one, two = collected(1), collected(2)
    groups_of_two = [0, 1, 4, 5, 2, 3, 6, 7]  # rows of groups 0 and 1 on each device
    np.testing.assert_array_equal(two.obs[0], one.obs[0][groups_of_two])
    assert len(np.unique(one.obs[0, :, 0])) == 8


def test_statistics_count_complete_episodes(rollouts):
    _, _, (first, second) = rollouts
    for one, ended in ((first, 8), (second, 12)):
        assert one.episodes["rollout/ep_rew_mean"].count == ended
        assert one.episodes["rollout/ep_rew_mean"].total == 6 * ended
        assert one.episodes["rollout/ep_len_mean"].total == 3 * ended


def test_rnn_carry_is_stored_per_segment_and_reset_at_ends(rollouts):
    _, _, (first, second) = rollouts
    cell = np.concatenate([first.carry[0], second.carry[0]])  # before steps 0, 4, 8 and 12
    assert not cell[0].any() and not cell[3].any()  # at the start, and at step 12 = 4 · 3
    assert cell[2].any(axis=-1).all()  # two steps into an episode; the first observation is zero


def test_learner_recomputes_the_actor_log_probs(rollouts):
    executor, state, (first, _) = rollouts
    frozen = state.learner.replace(learning_rate=state.learner.learning_rate * 0)
    learn = executor._learning.result()
    hparams = {**state.learner.hparams, "learning_rate": np.float32(0)}
    copied = jax.tree.map(jax.numpy.copy, state.replace(learner=frozen.replace(hparams=hparams)))
    _, metrics = learn(copied, first)
    assert float(metrics["train/approx_kl"].total) < 1e-11


def test_termination_is_distinguished_from_truncation():
    env = gym_env.build("gym:tests.helpers.toys:Ends-v0", 2, 1)
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
        "--ppo.rollout-length 16 --ppo.num-minibatches 2 --eval.num-envs 2 --log.episodes"
    )
    assert train.main([*flags, "--run-dir", str(folder)]) == 0
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    rows = tiny.rows(folder)
    assert [row["step"] for row in rows] == [256, 512]
    header = 2
    episodes = len((folder / "monitor.csv").read_text().splitlines()) - header
    assert episodes == rows[-1]["rollout/episodes"] > 0
    assert evaluate.main([str(folder), "--episodes", "2"]) == 0
    assert "mean_reward" in capsys.readouterr().out


def test_records_of_iterations_have_one_shape():
    found = gymnasium._records([[(1.0, 3)], [], [(2.0, 4), (5.0, 6)]])
    assert found["episodes/return"].shape == found["episodes/length"].shape == (3, 1, 2)
    np.testing.assert_array_equal(
        found["episodes/return"][:, 0], [[1, np.nan], [np.nan, np.nan], [2, 5]]
    )
    np.testing.assert_array_equal(found["episodes/length"][2, 0], [4, 6])
    assert gymnasium._records([[], []])["episodes/return"].shape == (2, 1, 0)


def test_off_policy_algorithms_train_on_gymnasium_envs(tmp_path):
    flags = shlex.split(
        "gym-cartpole --algo dqn --devices 1 --num-envs 4 --epochs 1 --cycles 1 --iterations 12 "
        "--eval.num-envs 0 --offpolicy.warmup 20 --offpolicy.train-batches 2 "
        "--offpolicy.batch-size 8 "
        "--task.async-factor 1"
    )
    assert train.main([*flags, "--run-dir", str(tmp_path / "run")]) == 0
    (row,) = tiny.rows(tmp_path / "run")
    assert np.isfinite(row["train/q_loss"]) and row["replay/steps"] > 20


def test_resume_keeps_finished_episodes_in_replay(tmp_path):
    """The run stops 2 steps into episodes of 4: the finished ones suffice for updates."""
    folder = tmp_path / "run"
    flags = shlex.split(
        "rrd-quick --env gym:tests.helpers.toys:Ends-v0 --task.no-episodic-reward --devices 1 "
        "--num-envs 2 --epochs 1 --cycles 1 --iterations 18 --eval.num-envs 0 --network.hidden 8 "
        "--network.critic-hidden 8 --offpolicy.train-batches 1 "
        "--offpolicy.batch-size 8 --rrd.batch-size 8 "
        "--rrd.sample-size 4 --offpolicy.buffer-size 500 --offpolicy.warmup 20 "
        "--task.async-factor 1"
    )
    assert train.main([*flags, "--run-dir", str(folder)]) == 0
    more = ["--env", "gym:tests.helpers.toys:Ends-v0", "--epochs", "2"]
    assert train.main(["--resume", str(folder), *more]) == 0
    before, after = (row["train/n_updates"] for row in tiny.rows(folder))
    # 2 environments had 16 steps of complete episodes each: every resumed iteration updates.
    assert 0 < before < 18 and after == before + 18


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "gym:NoSuch-v9"}, "cannot make"),
        ({"env": "gym:Blackjack-v1"}, "observes"),
    ],
)
def test_unsupported_environments_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        gym_env.build(changes["env"], 2, 1)


def test_discrete_observations_are_one_hot():
    group = gym_env.build("gym:FrozenLake-v1", 3, 1).group(3, 0)
    steps = [group.step(np.full(3, 1)) for _ in range(40)]
    assert any(step.terminated.any() for step in steps)
    for step in steps:
        np.testing.assert_array_equal(np.sort(step.next_obs)[:, -2:], [[0, 1]] * 3)
    group.close()


def test_images_and_dicts_are_observed():
    env = gym_env.build("gym:tests.helpers.toys:Mixed-v0", 2, 1)
    shapes = {name: (leaf.shape, leaf.dtype.name) for name, leaf in env.spec.obs.items()}
    assert shapes == {
        "camera": ((16, 12, 3), "uint8"),
        "depth": ((16, 12, 1), "uint8"),
        "joints": ((2,), "float32"),
        "tool": ((3,), "float32"),
    }
    group = env.group(2, 0)
    for _ in range(3):
        step = group.step(np.zeros(2, np.int32))
    # The third step ends the episode: the successor is its last observation, not the new first.
    assert step.terminated.all()
    for obs, value in ((step.next_obs, 3), (group.obs, 0)):
        tool = 5 + value % 3
        np.testing.assert_array_equal(obs["joints"], np.full((2, 2), value))
        np.testing.assert_array_equal(obs["tool"], np.eye(3)[[value % 3] * 2])
        np.testing.assert_array_equal(obs["depth"], np.full((2, 16, 12, 1), tool))
        np.testing.assert_array_equal(obs["camera"][..., 1], np.full((2, 16, 12), 10 * tool))
        assert not obs["camera"][..., [0, 2]].any()
    group.close()


def test_non_finite_part_of_a_dict_resets_the_env():
    env = gym_env.build("gym:tests.helpers.toys:MixedBreaks-v0", 2, 1)
    group = env.group(2, 0)
    assert not group.obs["joints"].any() and group.obs["depth"].all()
    step = group.step(np.zeros(2, np.int32))
    assert group.nonfinite.all() and step.terminated.all()
    group.close()


def test_learning_from_images_and_vectors(tmp_path):
    flags = shlex.split(
        "gym-cartpole --env gym:tests.helpers.toys:Mixed-v0 --devices 1 --num-envs 4 --epochs 1 "
        "--cycles 1 --iterations 1 --ppo.rollout-length 4 --ppo.num-minibatches 1 "
        "--ppo.update-epochs 1 --eval.num-envs 1 --network.hidden 4 --network.critic-hidden 4 "
        "--task.async-factor 1"
    )
    assert train.main([*flags, "--run-dir", str(tmp_path / "run")]) == 0
    (row,) = tiny.rows(tmp_path / "run")
    assert row["eval/mean_reward"] == 1 + 2 + 3 and np.isfinite(row["train/value_loss"])


def test_env_without_time_limit_requires_episode_length():
    with pytest.raises(UserError, match="--task.episode-length"):
        gym_env.build("gym:CliffWalking-v1", 2, 1)
    group = gym_env.build("gym:CliffWalking-v1", 2, 1, limit=3).group(2, 0)
    truncated = [group.step(np.zeros(2, int)).truncated.all() for _ in range(3)]
    assert truncated == [False, False, True]
    group.close()


def test_non_finite_envs_are_reset_and_counted():
    group = gym_env.build("gym:tests.helpers.toys:Breaks-v0", 2, 1).group(2, 0)
    steps = [group.step(np.zeros((2, 2))) for _ in range(4)]
    assert [step.terminated.tolist() for step in steps] == [[False] * 2, [True] * 2] * 2
    assert np.isfinite([step.next_obs for step in steps]).all() and group.episodes.diverged == 4
    assert [step.reward[0] for step in steps] == [1, 0, 1, 0]
    group.close()


@pytest.mark.parametrize("name, steps", [("NanStart", 1), ("NanDone", 2), ("Huge", 2)])
def test_every_non_finite_value_is_counted(name, steps):
    group = gym_env.build(f"gym:tests.helpers.toys:{name}-v0", 2, 1).group(2, 0)
    assert np.isfinite(group.obs).all()
    results = [group.step(np.zeros((2, 2))) for _ in range(4)]
    assert [step.terminated[0] for step in results] == [(t + 1) % steps == 0 for t in range(4)]
    assert group.episodes.diverged == 2 * 4 // steps
    for step in results:
        assert np.isfinite(step.next_obs).all() and np.isfinite(step.reward).all()
    group.close()


def test_on_nan_stop_stops_the_run():
    config = presets.get("gym-cartpole")
    config = dataclasses.replace(config, task=dataclasses.replace(config.task, on_nan="stop"))
    validate.check(config)
    member = SimpleNamespace(nonfinite_steps=0)
    program = SimpleNamespace(nan_captures=lambda state: [])
    run = SimpleNamespace(config=config, members=[member], program=program)
    nan_guard.check_environments(run, None, 1)
    member.nonfinite_steps = 3
    with pytest.raises(nan_guard.NonFiniteEnvironmentError, match="in 3 steps of this cycle"):
        nan_guard.check_environments(run, None, 1)


def test_env_workers_ignore_signals(monkeypatch):
    """In processes as runs start them."""
    monkeypatch.setattr(workers, "multiprocessing", multiprocessing)
    (worker,) = gym_env.build("gym:CartPole-v1", 2, 1).workers([range(2)], 0).workers
    worker.wait_ready()
    os.kill(worker._process.pid, signal.SIGINT)
    os.kill(worker._process.pid, signal.SIGTERM)
    worker.send(np.zeros(2, int))
    assert worker.receive().reward.tolist() == [1, 1]
    worker._process.kill()
    with pytest.raises(UserError, match="exit code -9"):
        for _ in range(2):
            worker.send(np.zeros(2, int))
            worker.receive()
    worker.close()


def test_imports_code_detects_env_names_with_modules():
    assert env_names.imports_code("gym:module:Env-v0") and env_names.imports_code("module:Class")
    assert not env_names.imports_code("gym:CartPole-v1") and not env_names.is_custom("gym:CartPole")


def test_unsupported_settings_are_refused():
    config = presets.get("gym-cartpole")
    task = dataclasses.replace(config.task, reset_pool=5, async_factor=3, action_repeat=2)
    problems = validate.validate(dataclasses.replace(config, task=task, devices=2), 2)
    text = " ".join(problems)
    groups = "--task.async-factor 3 groups on each of 2 devices: use 30 or 36"
    for message in (groups, "--task.reset-pool", "--task.action-repeat"):
        assert message in text
