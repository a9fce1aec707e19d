"""Runs of several seeds or varied settings: output files, aggregates, resume and errors."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import jaxrl
from jaxrl import evaluate, programs, train
from jaxrl.config import overrides, variants
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir as folders
from jaxrl.programs import device, memory_estimate
from jaxrl.training import nan_guard, overview, population, recovery, summary
from jaxrl.utils import device_memory, stats
from tests.helpers import tiny

# In this order: `both` has plots, the other runs have none.
pytestmark = pytest.mark.usefixtures("shared_programs", "both", "no_plots")

SEEDS = ("--num-seeds", "2")
LEARNING_RATES = "ppo.learning-rate=0.001,0.01"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("seeds") / "run", *SEEDS)


def assert_same_runs(one, two):
    """Assert bit-identical rows and policies of each seed, and of the aggregate."""
    for place in ("", "seed-0", "seed-1"):
        assert tiny.rows(one / place) == tiny.rows(two / place)
    for place in ("seed-0", "seed-1"):
        tiny.assert_same_policy(one / place, two / place)


def test_every_seed_has_an_ordinary_run_folder(both, tmp_path):
    alone = tiny.run(tmp_path / "alone", "--seed", "1")
    one = both / "seed-1"
    expected = {p.relative_to(alone) for p in alone.rglob("*") if p.is_file()}
    missing = {p for p in expected if not (one / p).exists() and "tensorboard" not in str(p)}
    assert {p.parts[0] for p in missing} == {"checkpoints", ".lock"}  # shared by all seeds
    assert (both / "report.html").exists()
    config = json.loads((one / "config.json").read_text())
    assert config["seed"] == 1 and config["num_envs"] == 8
    for mine, theirs in zip(tiny.rows(one), tiny.rows(alone), strict=True):
        assert mine.keys() == theirs.keys()
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-2)
    mine, theirs = tiny.policy(one), tiny.policy(alone)
    for name in mine:
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-3, atol=1e-4)


def test_deleted_population_folder_is_recovered(both, tmp_path):
    folder = tmp_path / "run"
    config = train._parse(tiny.flags(folder, "--checkpoint.save-freq", "9")).config

    def delete(context):
        if context.cycle == 3:
            shutil.rmtree(folder)

    with pytest.raises(recovery.RunFolderLost, match="run-recovered at step 384"):
        jaxrl.fit(overrides.members(config, 2, []), [delete])
    new = tmp_path / "run-recovered"
    assert train.main(["--resume", str(new)]) == 0
    assert_same_runs(new, both)


def test_policy_of_one_seed_loads_and_evaluates(both, capsys):
    policy = jaxrl.load_policy(both / "seed-1")
    assert policy(np.zeros(4, np.float32)).shape == ()
    assert evaluate.main([str(both / "seed-1"), "--episodes", "2"]) == 0
    capsys.readouterr()
    assert evaluate.main([str(both), "--episodes", "2"]) == 2
    assert f"name one of them, as {both / 'seed-0'}" in capsys.readouterr().err


def test_aggregate_rows_are_means_and_iqms(both):
    top, *seeds = (tiny.rows(both / place, timed=True) for place in ("", "seed-0", "seed-1"))
    for together, one, two in zip(top, *seeds, strict=True):
        for name in ("rollout/ep_rew_mean", "train/loss", "eval/mean_reward"):
            if name in one and name in two:
                assert together[name] == pytest.approx((one[name] + two[name]) / 2)
        assert together["time/fps"] == pytest.approx(one["time/fps"] + two["time/fps"])
    returns = np.array([rows[-1]["eval/mean_reward"] for rows in seeds])
    low, high = stats.iqm_interval(returns)
    assert (top[-1]["eval/iqm_low"], top[-1]["eval/iqm_high"]) == (low, high)
    with np.load(both / "evaluations.npz") as data:
        np.testing.assert_allclose(data["results"][-1], returns)
    for place in ("plots", "seed-0/plots"):
        assert (both / place / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in (both / "checkpoints").iterdir()) == ["256", "512"]


def test_resume_with_more_epochs_equals_one_long_run(both, tmp_path, capsys):
    folder = tiny.run(tmp_path / "run", *SEEDS, "--epochs", "1")
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    assert_same_runs(folder, both)
    out = capsys.readouterr().out
    assert (
        "512 environment steps of each of 2 seeds" in out and "(range" in out and "IQM" not in out
    )
    with pytest.raises(UserError, match="goes on as a whole"):
        jaxrl.resume(folder / "seed-1")
    with pytest.raises(UserError, match=f"--init-from {folder / 'seed-0'}"):
        jaxrl.resume(folder, reset_steps=True)
    for name in ("config.json", "seed-1/config.json"):
        changed = (folder / name).read_text().replace('"clip": 0.2', '"clip": 0.3')
        (folder / name).write_text(changed)
    with pytest.raises(UserError, match="traced settings only|ppo.clip is 0.3"):
        jaxrl.resume(folder, epochs=3)


def test_ctrl_c_finishes_the_cycle_and_resume_is_exact(both, tmp_path):
    def interrupt(context):
        if context.cycle == 1:
            os.kill(os.getpid(), signal.SIGINT)

    config = train._parse(tiny.flags(tmp_path / "run")).config
    result = jaxrl.fit(overrides.members(config, 2), callbacks=[interrupt])
    assert (result.stopped_by, result.env_steps) == (signal.SIGINT, 128)
    assert len(result.members) == 2
    assert jaxrl.resume(result.folder).env_steps == 512
    assert_same_runs(result.folder, both)


def test_vary_accepts_several_settings_and_repeated_flags():
    one, other = "ppo.gamma=0.9,0.8", "ppo.lam=0.5,0.7"
    for words in (["--vary", one, other], ["--vary", one, "--seed", "3", f"--vary={other}"]):
        assert train._parse(["cartpole", *words]).vary == (one, other)
    assert train._parse(["cartpole", "--vary", one, "--seed", "3"]).config.seed == 3


def test_settings_vary_by_member(tmp_path, capsys):
    folder = tiny.run(tmp_path / "run", "--vary", LEARNING_RATES, "--epochs", "1")
    names = [f"ppo.learning-rate={rate},seed-0" for rate in ("0.001", "0.01")]
    assert json.loads((folder / "members.json").read_text()) == names
    for name, rate in zip(names, (0.001, 0.01), strict=True):
        rows = tiny.rows(folder / name)
        assert {round(row["train/learning_rate"], 6) for row in rows} == {rate}
        assert (
            json.loads((folder / name / "config.json").read_text())["ppo"]["learning_rate"] == rate
        )
    assert "ppo.learning-rate=0.01/eval/iqm_reward" in tiny.rows(folder)[-1]
    assert "ppo.learning-rate=0.01: mean" in capsys.readouterr().out
    assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
    rows = tiny.rows(folder / names[1])
    assert len(rows) == 4 and rows[-1]["train/learning_rate"] == pytest.approx(0.01)


@pytest.mark.parametrize("text", ['["../run"]', '[".."]', "[3]", "{", "[]"])
def test_invalid_member_folders_are_refused(tmp_path, text):
    (tmp_path / "members.json").write_text(text)
    with pytest.raises(UserError, match="members.json"):
        folders.read_members(tmp_path)


def test_curriculum_level_follows_training_in_every_seed(tmp_path):
    flags = ("--env", "tests.helpers.custom_envs:Widening", "--task.episode-length", "4")
    folder = tiny.run(tmp_path / "run", *flags, *SEEDS)
    for name in ("seed-0", "seed-1"):
        rows = tiny.rows(folder / name)
        assert [row["curriculum/level"] for row in rows] == [0.375, 0.5, 0.625, 0.75]
        reward = [row["rollout/ep_rew_mean"] / 4 for row in rows]
        assert reward[0] == 0.25 and reward == sorted(reward) and reward[-1] > 0.45


@pytest.mark.parametrize(
    "flags, text",
    [
        (("--num-seeds", "0"), "--num-seeds must lie between 1 and"),
        (("--num-seeds", "2", "--devices", "0"), "--devices must be at least 1, not 0"),
        (("--num-seeds", "2", "--devices", "-1"), "--devices must be at least 1, not -1"),
        (("--vary", "ppo.gama=1,2"), "Did you mean 'ppo.gamma'"),
        (("--vary", "ppo.gamma"), "write a setting and its values"),
        (("--vary", "ppo.gamma=0.9,True"), "ppo.gamma: its values are numbers"),
        (("--vary", "ppo.bootstrap-truncated=0.5"), "its values are True and False"),
        (("--vary", "ppo.gamma=0.9,0.9"), "are the same: seed-0"),
        (("--vary", "ppo.gamma=0.9", "ppo.gamma=0.8"), "name every setting once"),
        (("--vary", "num-envs=8,16"), r"only settings that --help marks as \(traced\)"),
        (("--vary", "ppo.gamma=0.9,2"), "--ppo.gamma must lie between 0 and 1"),
        (("--vary", "ppo.bound-coef=0,1"), "not in --ppo.bound-coef"),
        (
            ("--vary", "ppo.adam-epsilon=1e-5,1e-6"),
            r"only settings that --help marks as \(traced\)",
        ),
    ],
)
def test_invalid_population_flags_are_refused(tmp_path, flags, text):
    command = train._parse(tiny.flags(tmp_path / "run", *flags))
    with pytest.raises(UserError, match=text):
        train._start(command)
    assert not (tmp_path / "run").exists()


def test_init_from_a_population_needs_one_member(both, tmp_path):
    with pytest.raises(UserError, match=f"holds several runs: name one of them, as {both}/seed-0"):
        train._start(train._parse(tiny.flags(tmp_path / "run", "--init-from", str(both))))
    assert tiny.rows(tiny.run(tmp_path / "two", "--init-from", str(both / "seed-0")))


def test_traced_booleans_vary():
    config = train._parse(["cartpole"]).config
    for values in ("0,1", "False,True", "false,true"):
        disabled, enabled = overrides.members(config, 1, [f"ppo.bootstrap-truncated={values}"])
        assert (disabled.ppo.bootstrap_truncated, enabled.ppo.bootstrap_truncated) == (False, True)


def test_variant_names_and_aggregates():
    config = train._parse(["cartpole", "--seed", "7"]).config
    members = overrides.members(config, 4, ["ppo.gamma=0.9,0.99"])
    assert variants.folder_names(members)[3:5] == ["ppo.gamma=0.9,seed-10", "ppo.gamma=0.99,seed-7"]
    assert variants.by_label(members) == {
        "ppo.gamma=0.9": [0, 1, 2, 3],
        "ppo.gamma=0.99": [4, 5, 6, 7],
    }
    assert variants.number(members) == "8 members" and variants.number(members[:4]) == "4 seeds"
    rewards = [1.0, 2.0, 4.0, 100.0, 5.0, 5.0, 5.0, 5.0]
    rows = [{"eval/mean_reward": r, "eval/iqm_reward": 0.0, "time/fps": 10.0} for r in rewards]
    found = overview.figures(members, rows)
    assert found["ppo.gamma=0.9/eval/iqm_reward"] == 3.0  # the mean of 2 and 4
    assert found["ppo.gamma=0.99/eval/iqm_low"] == found["ppo.gamma=0.99/eval/iqm_high"] == 5.0
    assert found["eval/max_reward"] == 100.0 and "time/fps" not in found
    assert overview.joined(rows)["time/fps"] == 80.0
    assert overview.joined([{"a": 1.0}, {"a": 3.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}


def test_a_diverged_member_does_not_stop_the_others():
    messages = []
    logged = []
    members = [
        SimpleNamespace(
            nonfinite_streak=0, diverged=False, folder=None, log=lambda *row: logged.append(row)
        )
        for _ in range(2)
    ]
    members[1].folder = SimpleNamespace(name="seed-1")
    members[0].folder = SimpleNamespace(name="seed-0")
    run = SimpleNamespace(
        members=members,
        config=train._parse(["cartpole"]).config,
        console=SimpleNamespace(warn=messages.append),
        checkpoints=SimpleNamespace(wait=lambda: None, steps=lambda: []),
        env_steps=lambda cycles: cycles,
    )
    members[1].nonfinite_streak = run.config.ppo.max_nonfinite_updates
    for cycles in (1, 2):
        nan_guard.check_updates(run, [{}, {}], cycles)
    assert (
        len(messages) == 1 and "seed-1 diverged: 50 consecutive non-finite updates" in messages[0]
    )
    members[0].nonfinite_streak = run.config.ppo.max_nonfinite_updates
    with pytest.raises(nan_guard.TrainingDiverged, match="No checkpoint yet"):
        nan_guard.check_updates(run, [{"train/loss": math.nan}, {}], 3)
    assert [(cycles, row["train/diverged"]) for cycles, row in logged] == [(3, 1.0), (3, 1.0)]


def test_dry_run_reports_how_many_seeds_fit(monkeypatch, capsys):
    config = train._parse(tiny.FLAGS).config
    peak = memory_estimate.estimated_peak(programs.build(config))
    monkeypatch.setattr(device_memory, "free", lambda: 5 * peak + 1)
    command = train._parse([*tiny.FLAGS, "--num-seeds", "4", "--dry-run"])
    assert train._start(command) == 0
    out = capsys.readouterr().out
    assert f"of 4 together    {memory_estimate.megabytes(4 * peak)}" in out
    assert "seeds that fit (--num-seeds)    about 5" in out
    steps = config.total_iterations * config.steps_per_iteration
    assert f"steps of each member            {steps:,}" in out
    six = population.build([replace(config, seed=seed) for seed in range(6)])
    assert "about 5 fit" in memory_estimate.too_many(six)
    assert memory_estimate.too_many(replace(six, members=six.members[:5])) is None
    assert "lower --num-seeds" in memory_estimate.too_large(six)


def test_memory_estimate_is_within_2x_of_compiled_size():
    wide = "--network.hidden 64 --network.critic-hidden 64 64 --num-envs 128 --eval.num-envs 0"
    program = programs.build(train._parse([*tiny.FLAGS, *wide.split()]).config)
    needed = device.compile_programs(program).cycle_bytes()
    assert needed / 2 < memory_estimate.estimated_peak(program) < needed * 2


def test_free_device_memory_is_plausible():
    assert 2**28 < device_memory.free() < device_memory.of_device() < 2**50


def test_population_summary_text(tmp_path):
    seeds = tuple(
        summary.Result(tmp_path / f"seed-{i}", 512, 3.0 + i, {"eval/mean_reward": 2.0 + i})
        for i in range(2)
    )
    whole = summary.Result(
        tmp_path, 512, 3.0, {}, members=seeds, number="2 seeds", iqm=("IQM 2.5",)
    )
    text = summary.text(whole, train._parse(["cartpole"]).config)
    assert "512 environment steps of each of 2 seeds" in text and "last evaluation  IQM 2.5" in text
    assert "  seed-1           3   best 4" in text
    bad = replace(seeds[1], best_reward=None, last_evaluation={"eval/mean_reward": math.nan})
    text = summary.text(replace(whole, members=(seeds[0], bad)), train._parse(["cartpole"]).config)
    assert "  seed-1    diverged   no finite evaluation" in text
    assert f"jaxrl.evaluate {tmp_path / 'seed-0'} --episodes" in text
    assert f"--resume {tmp_path} --epochs" in text
