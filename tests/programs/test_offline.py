"""Offline reward learning end to end: train, record, learn from returns, evaluate."""

import json
import shlex
import types
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from jaxrl import evaluate, programs, record, train
from jaxrl.data import hdf5
from jaxrl.data.hdf5 import Episode
from jaxrl.envs import factory as environments
from jaxrl.errors import UserError
from jaxrl.evaluation import recording
from jaxrl.loggers import run_dir as folders
from jaxrl.policies import load_policy, reward_files
from jaxrl.policies.reward_files import load_reward
from jaxrl.programs import offline
from jaxrl.reports import load_runs
from tests.helpers import tiny

# In this order: `trained` has plots, the other runs have none.
pytestmark = pytest.mark.usefixtures("shared_programs", "trained", "no_plots")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Recorded 30-step pendulum episodes of a barely trained policy; rewards are observable."""
    place = tmp_path_factory.mktemp("circle")
    flags = shlex.split(
        "pendulum --devices 1 --num-envs 8 --epochs 1 --cycles 1 --iterations 2 --eval.num-envs 0 "
        "--network.hidden 8 --network.critic-hidden 8 --ppo.num-minibatches 2 "
        "--ppo.rollout-length 8 --task.episode-length 30"
    )
    assert train.main([*flags, "--run-dir", str(place / "run")]) == 0
    command = [str(place / "run"), "--policy", "final", "--out", str(place / "data.hdf5")]
    assert record.main([*command, "--episodes", "90", "--noise", "0", "0.5", "1"]) == 0
    return place / "data.hdf5"


FLAGS = shlex.split(
    "rrd-offline --epochs 2 --cycles 2 --iterations 5 --offpolicy.train-batches 60 "
    "--rrd.batch-size 256 "
    "--rrd.sample-size 8 --network.critic-hidden 32 32 --offpolicy.r-lr 3e-3 "
    "--offpolicy.buffer-size 1500"
)


def _learn(data, folder, *extra):
    assert train.main([*FLAGS, "--data.path", str(data), "--run-dir", str(folder), *extra]) == 0
    return folder


@pytest.fixture(scope="module")
def trained(recorded, tmp_path_factory):
    return _learn(recorded, tmp_path_factory.mktemp("runs") / "learnt")


def test_recorded_episodes_match_the_environment(recorded):
    places = hdf5.list_episodes(recorded)
    assert len(places) == 90 and len(hdf5.list_episodes(recorded, "valid")) == 9
    for place in places[::9]:
        episode = hdf5.read(place)
        state, next_obs = episode.obs["state"], episode.next_obs["state"]
        assert len(state) == 30 and np.abs(episode.action).max() <= 1
        np.testing.assert_array_equal(next_obs[:-1], state[1:])
        angle = np.arctan2(state[:, 1], state[:, 0])
        cost = angle**2 + 0.1 * state[:, 2] ** 2 + 0.001 * (2 * episode.action[:, 0]) ** 2
        np.testing.assert_allclose(episode.reward, -cost, rtol=1e-3, atol=1e-3)


def test_record_honors_episode_count_with_fixed_trials(tmp_path):
    """Evaluation plays each of the three clips once; recording samples start states."""
    env_flags = ["--env", "tests.helpers.custom_envs:Drill", "--task.episode-length", "8"]
    short = ["--epochs", "1", "--cycles", "1", "--eval.num-envs", "0"]
    assert train.main([*tiny.FLAGS, *env_flags, *short, "--run-dir", str(tmp_path / "run")]) == 0
    command = [str(tmp_path / "run"), "--policy", "final", "--env", env_flags[1], "--noise", "0"]
    out = tmp_path / "data.hdf5"
    assert record.main([*command, "--episodes", "7", "--out", str(out)]) == 0
    lengths = [len(hdf5.read(place).reward) for place in hdf5.list_episodes(out)]
    assert len(lengths) == 7 and set(lengths) <= {5, 8}


@pytest.mark.parametrize(
    "flags, complaint",
    [
        (["--episodes", "0"], "--episodes must lie between 1 and"),
        (["--valid", "1"], "--valid: a fraction of at least 0 and below 1, not 1.0"),
        (["--valid", "-0.1"], "--valid: a fraction of at least 0 and below 1, not -0.1"),
        (["--noise", "2"], "--noise: fractions between 0 and 1"),
    ],
)
def test_invalid_record_flags_are_refused_before_playing(
    recorded, flags, complaint, capsys, monkeypatch
):
    monkeypatch.setattr(recording, "player", lambda *_: pytest.fail("played"))
    out = recorded.with_name("none.hdf5")
    assert record.main([str(recorded.with_name("run")), "--out", str(out), *flags]) == 2
    assert complaint in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.learning
def test_learned_reward_predicts_held_out_steps(trained):
    found = json.loads((trained / "rewards.json").read_text())
    assert found["episodes"] == 9 and found["pearson"] > 0.8
    assert (trained / "plots" / "rewards.png").stat().st_size > 10_000


def test_within_episode_correlation_skips_constant_rewards(tmp_path, monkeypatch):
    """Of these four episodes one is too short and one has a constant reward."""
    true = [np.float32(r) for r in ([1.0], [0.1] * 7, [1.0, 2.0, 3.0], [0.0, 0.0, 1.0])]
    episodes = [Episode({}, {}, np.float32([[len(r)]]), r) for r in true]
    predictions = {1: true[0], 7: np.arange(7.0), 3: np.float32([1.0, 2.0, 3.0])}
    monkeypatch.setattr(
        reward_files,
        "load_reward",
        lambda _: lambda obs, action, next_obs: predictions[int(action[0, 0])],
    )
    data = types.SimpleNamespace(held_out=range(4), read=episodes.__getitem__)
    found = reward_files.report(tmp_path, data)
    assert found["episodes"] == 4
    expected = (1.0 + np.corrcoef([1, 2, 3], [0, 0, 1])[0, 1]) / 2
    assert found["pearson_within_episodes"] == pytest.approx(expected)


def test_losses_are_logged_by_iteration_cycle_and_epoch(trained):
    rows = tiny.rows(trained)
    lines = (trained / "iterations.jsonl").read_text().splitlines()
    each = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == [300, 600, 900, 1200]  # gradient steps
    assert [line["step"] for line in each] == list(range(1, 21))
    losses = np.array([line["train/R_loss"] for line in each]).reshape(4, 5).mean(axis=1)
    np.testing.assert_allclose([row["train/R_loss"] for row in rows], losses, rtol=1e-4)
    epochs = losses.reshape(2, 2).mean(axis=1)
    found = [row["train/R_loss_epoch"] for row in rows if "train/R_loss_epoch" in row]
    np.testing.assert_allclose(found, epochs, rtol=1e-4)
    # TensorBoard and the report show iterations over gradient steps, 60 in each.
    (events,) = (trained / "tensorboard").glob("events*")
    points = EventAccumulator(str(events)).Reload().Scalars("iterations/R_loss")
    curve = load_runs.read(trained).curves["iterations/R_loss"]
    assert [point.step for point in points] == curve.steps.tolist() == list(range(60, 1201, 60))
    np.testing.assert_allclose(curve.values, [line["train/R_loss"] for line in each])
    assert "Every iteration" in (trained / "report.html").read_text()


def test_recorded_data_is_counted_by_name(trained):
    row = tiny.rows(trained, timed=True)[-1]
    assert row["data/episodes"] == 81 and row["data/steps"] == 81 * 30
    assert row["time/gradient_steps"] == row["train/n_updates"] == 1200
    assert not row.keys() & {"rollout/episodes", "time/total_timesteps"}


def test_resume_equals_one_long_run(recorded, trained, tmp_path):
    """The data is read in two chunks, one per cycle."""
    parts = _learn(recorded, tmp_path / "parts", "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(trained)
    assert (parts / "iterations.jsonl").read_text() == (trained / "iterations.jsonl").read_text()
    places = [folder / "rewards" / "final.npz" for folder in (parts, trained)]
    ours, theirs = (dict(np.load(place)) for place in places)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_reset_steps_keeps_the_held_out_episodes(trained, tmp_path):
    """The new run has another seed: held-out episodes sampled again would be training data."""
    flags = ["--resume", str(trained), "--reset-steps", "--epochs", "1"]
    assert train.main([*flags, "--run-dir", str(tmp_path / "on")]) == 0
    configs = [folders.read_config(run) for run in (trained, tmp_path / "on")]
    assert configs[0].seed != configs[1].seed
    first, second = (offline.build(config).data.held_out for config in configs)
    assert len(first) == 9 and first == second


def test_best_reward_model_is_selected_over_all_chunks(tmp_path, capsys):
    """Rewards of one file are a thousand times larger; every epoch reads one of two files."""
    rng = np.random.default_rng(0)
    for name, scale in (("a", 10.0), ("b", 0.01)):
        episodes = []
        for _ in range(10):
            state = rng.normal(size=(9, 2)).astype(np.float32)
            reward = scale * (state[:-1, 0] + rng.normal())
            action = np.zeros((8, 1), np.float32)
            episodes.append(Episode({"state": state[:-1]}, {"state": state[1:]}, action, reward))
        hdf5.write(tmp_path / "data" / f"{name}.hdf5", episodes, {}, {})
    short = "--epochs 5 --cycles 1 --iterations 2 --offpolicy.train-batches 10 --rrd.batch-size 32"
    short += " --offpolicy.buffer-size 80 --data.holdout 0 --seed 1"
    extra = shlex.split(short)
    folder = _learn(tmp_path / "data", tmp_path / "run", *extra)
    assert "epochs of 1 cycle read some more often than others" in (out := capsys.readouterr().out)
    assert "Use --cycles 2." in out
    fits = [row["train/R_fit"] for row in tiny.rows(folder)]
    both = [np.mean(fits[i - 1 : i + 1]) for i in range(1, 5)]
    best = 2 + int(np.argmin(both))
    assert best != 1 + np.argmin(fits), "use another seed: this one cannot tell the two apart"
    assert load_reward(folder, "best").info["env_steps"] == best * 20
    # Stopped after an odd number of epochs, it restores the loss of the previous chunk.
    parts = _learn(tmp_path / "data", tmp_path / "parts", *extra, "--epochs", "3")
    assert train.main(["--resume", str(parts), "--epochs", "5"]) == 0
    assert load_reward(parts, "best").info == load_reward(folder, "best").info


def test_chunks_that_are_never_read_are_warned_about(recorded, capsys):
    flags = [*FLAGS, "--data.path", str(recorded), "--offpolicy.buffer-size", "500", "--dry-run"]
    assert train.main(flags) == 0
    assert "but the run has 4 cycles: the other chunks are never read. Use --cycles 6" in _flat(
        capsys
    )
    assert train.main([*flags, "--total-steps", "900"]) == 0
    assert (
        "but the run has 3 cycles: the other chunks are never read. Use --total-steps 1800"
        in _flat(capsys)
    )
    for enough in (["--cycles", "6"], ["--total-steps", "1800", "--cycles", "6"]):
        assert train.main([*flags, *enough]) == 0
        assert "warning" not in _flat(capsys)


def _flat(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_load_reward_accepts_dicts_and_bare_arrays(recorded, trained):
    reward, episode = load_reward(trained), hdf5.read(hdf5.list_episodes(recorded)[0])
    predicted = reward(episode.obs, episode.action, episode.next_obs)
    assert predicted.shape == (30,) and np.isfinite(predicted).all()
    # The recording has one key, so a bare array is unambiguous.
    bare = reward(episode.obs["state"], episode.action, episode.next_obs["state"])
    np.testing.assert_array_equal(bare, predicted)
    more = {"other": np.zeros(30)}
    also = reward(episode.obs | more, episode.action, episode.next_obs | more)
    np.testing.assert_array_equal(also, predicted)
    with pytest.raises(UserError, match="next_obs lacks 'state': .* dictionary of state"):
        reward(episode.obs, episode.action, more)
    two = reward._replace(spec=reward.spec._replace(obs={"state": 1, "zoom": 1}))
    with pytest.raises(UserError, match="obs is one array: .* dictionary of state, zoom"):
        two(episode.obs["state"], episode.action, episode.next_obs["state"])


def test_linear_part_of_the_reward_is_solved_for(recorded, tmp_path):
    """So few gradient steps learn nothing: the fit comes from the linear solve."""
    few = ["--offpolicy.train-batches", "1", "--rrd.batch-size", "300", "--iterations", "8"]
    found = {}
    for kind in ("quadratic", "none"):
        more = [*few, "--rrd.features", kind, "--epochs", "1"]
        folder = _learn(recorded, tmp_path / kind, *more)
        found[kind] = json.loads((folder / "rewards.json").read_text())["pearson"]
    assert found["quadratic"] > 0.8 > 0.6 > found["none"], found


def test_invalid_offline_commands_are_refused(recorded, trained, tmp_path, capsys):
    assert train.main(["rrd-offline"]) == 2
    assert "--data.path: which file" in capsys.readouterr().err
    assert train.main(["pendulum", "--data.path", str(recorded)]) == 2
    refused = "--data.path is a setting of --algo sac or td3 or dqn or iql or bc, not of ppo"
    assert refused in capsys.readouterr().err
    assert train.main([*FLAGS, "--data.path", str(recorded), "--data.obs-keys", "stat"]) == 2
    assert "'obs/stat' is missing. Did you mean 'state'" in capsys.readouterr().err
    assert train.main([*FLAGS, "--data.path", str(recorded), "--dry-run"]) == 0
    assert "in 2 chunks" in capsys.readouterr().out
    assert evaluate.main([str(trained)]) == 2
    assert "No policy" in capsys.readouterr().err
    assert record.main([str(trained), "--out", str(tmp_path / "x.hdf5")]) == 2
    assert "and has no environment" in capsys.readouterr().err
    (trained / "rewards" / "best.npz").rename(tmp_path / "best.npz")  # as if stopped early
    assert load_reward(trained).spec == load_reward(tmp_path / "best.npz").spec
    (tmp_path / "best.npz").rename(trained / "rewards" / "best.npz")
    with pytest.raises(UserError, match="No learnt reward"):
        load_reward(tmp_path)


# --- policies

POLICY = shlex.split(
    "--epochs 2 --cycles 1 --iterations 2 --offpolicy.train-batches 8 "
    "--offpolicy.batch-size 32 --eval.num-envs 4 "
    "--network.hidden 8 --network.critic-hidden 8 --env pendulum --task.episode-length 30"
)


def _train(preset, data, folder, *extra):
    flags = [preset, "--data.path", str(data), *POLICY, "--run-dir", str(folder), *extra]
    assert train.main(flags) == 0
    return folder


@pytest.fixture(scope="module")
def cloned(recorded, tmp_path_factory):
    return _train("iql", recorded, tmp_path_factory.mktemp("runs") / "cloned")


def test_policy_of_recorded_episodes_is_evaluated_in_its_environment(cloned, capsys):
    rows = tiny.rows(cloned)
    assert [row["step"] for row in rows] == [16, 32]  # gradient steps
    for name in ("eval/mean_reward", "heldout/action_error", "heldout/q_loss", "train/v_loss"):
        assert all(np.isfinite(row[name]) for row in rows), name
    assert evaluate.main([str(cloned), "--episodes", "3"]) == 0
    assert load_policy(cloned).info["obs_keys"] == ["state"]
    assert load_policy(cloned)(np.zeros(3, np.float32)).shape == (1,)


def test_policy_resumes_exactly(recorded, cloned, tmp_path):
    parts = _train("iql", recorded, tmp_path / "parts", "--epochs", "1")
    assert train.main(["--resume", str(parts), "--epochs", "2"]) == 0
    assert tiny.rows(parts) == tiny.rows(cloned)
    tiny.assert_same_policy(parts, cloned)


def test_seeds_of_a_population_equal_single_runs(recorded, cloned, tmp_path):
    both = _train("iql", recorded, tmp_path / "both", "--num-seeds", "2")
    ours, theirs = (tiny.policy(folder) for folder in (both / "seed-0", cloned))
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-3, atol=2e-5, err_msg=name)
    assert not np.array_equal(
        tiny.policy(both / "seed-1")["actor/params/head/kernel"], ours["actor/params/head/kernel"]
    )


def test_without_an_environment_held_out_steps_evaluate(recorded, tmp_path, capsys):
    folder = _train("bc", recorded, tmp_path / "run", "--env", "offline")
    rows = tiny.rows(folder)
    assert "heldout/action_error" in rows[-1] and "eval/mean_reward" not in rows[-1]
    assert "jaxrl.evaluate" in (out := capsys.readouterr().out) and "--env ENV" in out
    assert evaluate.main([str(folder)]) == 2
    assert "name an environment by --env" in capsys.readouterr().err
    assert evaluate.main([str(folder), "--env", "pendulum", "--episodes", "2"]) == 0


def test_recorded_data_must_fit_the_environment(recorded, capsys):
    flags = ["bc", "--data.path", str(recorded), *POLICY, "--env", "cartpole"]
    assert train.main(flags) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "--env cartpole has observations (4,) and 2 discrete actions, the data has (3,)" in err


def test_policy_learns_from_the_reward_of_another_run(recorded, trained, cloned, tmp_path):
    """The learnt reward is near the recorded one, so that critics differ a little, not much."""
    folder = _train("iql", recorded, tmp_path / "run", "--reward-from", str(trained))
    ours, theirs = (tiny.rows(each)[-1]["train/q_loss"] for each in (folder, cloned))
    assert ours != theirs and ours == pytest.approx(theirs, rel=0.5)


def test_held_out_steps_have_the_reward_of_another_run(recorded, trained):
    flags = ["iql", "--data.path", str(recorded), *POLICY, "--reward-from", str(trained)]
    program = offline.build(train._parse(flags).config)
    executor = program.start()
    executor.close()
    recorded_steps = program.data.held_out_steps(2**20)
    expected = load_reward(trained).predict(
        recorded_steps.obs, recorded_steps.action, recorded_steps.next_obs
    )
    np.testing.assert_allclose(executor._other_steps.reward, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(expected, recorded_steps.reward, atol=1e-2)


def test_online_training_takes_the_reward_of_another_run(trained):
    """Steps give the predicted reward; statistics of episodes count the environment's."""
    flags = ["pendulum", "--num-envs", "2", "--devices", "1", "--task.episode-length", "1"]
    config = train._parse([*flags, "--ppo.num-minibatches", "2"]).config
    env = programs.build(replace(config, reward_from=trained)).env
    key = jax.random.key(0)

    @jax.jit
    def play(action):
        state = env.reset(key, stagger=False)
        after, result = env.advance(state, action)
        return env.observe(state), result, env.pop_statistics(after)[1]

    action = jnp.array([[0.5], [-1.0]])
    obs, result, statistics = jax.device_get(play(action))
    predicted = load_reward(trained)(obs, action, result.next_obs)
    np.testing.assert_allclose(result.reward, predicted, rtol=1e-4)
    angle, speed = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]
    rewards = -(angle**2 + 0.1 * speed**2 + 0.001 * (2 * np.asarray(action)[:, 0]) ** 2)
    assert float(statistics["rollout/ep_rew_mean"].total) == pytest.approx(rewards.sum(), rel=1e-3)
    assert environments.for_evaluation(env, 2).reward_fn is None


@pytest.mark.parametrize(
    "flags, problem",
    [
        (
            ["custom", "--env", "pendulum", "--algo", "bc"],
            "--algo bc learns from recorded episodes",
        ),
        (
            ["rrd-offline", "--offpolicy.batch-size", "64"],
            "--offpolicy.batch-size has no effect with --rrd.reward-only",
        ),
        (["rrd-offline", "--offpolicy.gamma", "0.9"], "--offpolicy.gamma has no effect with"),
        (["iql", "--offpolicy.warmup", "9"], "--offpolicy.warmup has no effect with --data.path"),
        (["iql", "--num-envs", "9"], "--num-envs has no effect with --data.path"),
        (["bc", "--offpolicy.reward", "rrd"], "--algo bc reads no rewards"),
        (["iql", "--offpolicy.critic", "c51"], "c51 is for sac and td3: use mse with iql"),
        (["rrd-offline", "--env", "pendulum"], "has no policy to evaluate: use --env offline"),
        (["iql", "--offpolicy.reward", "rrd", "--reward-from", "x"], "--reward-from replaces"),
        (["iql", "--task.episodic-reward", "--reward-from", "x"], "use --task.no-episodic-reward"),
    ],
)
def test_flags_without_effect_are_refused(flags, problem, recorded, capsys):
    data = [] if flags[0] == "custom" else ["--data.path", str(recorded)]
    assert train.main([*flags, *data]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
