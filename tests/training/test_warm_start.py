"""Runs started from other runs: from their full state, or from learned weights only."""

import importlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl import programs, train
from jaxrl.algorithms import registry as algorithms
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import OffPolicyConfig, TrainConfig, serialization
from jaxrl.errors import UserError
from jaxrl.policies import files as policy_files
from jaxrl.training import warm_start
from jaxrl.utils import trees
from tests.helpers import tiny
from tests.training import test_off_policy_runs as off_policy_runs

pytestmark = pytest.mark.usefixtures("shared_programs", "no_plots")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return tiny.run(tmp_path_factory.mktemp("source") / "run", "--ppo.l2-init-coef", "0.1")


def leaves(folder, step):
    """Return the arrays of a checkpoint by name."""
    with CheckpointManager(folder / "checkpoints") as checkpoints:
        found = checkpoints.read(step)
    return {leaf.path: data for leaf, data in zip(found.leaves, found.arrays, strict=True)}


def restarted(source, folder, *extra):
    flags = ["--resume", str(source), "--reset-steps", "--run-dir", str(folder), *extra]
    assert train.main(flags) == 0
    return folder


def initial_learner(*flags):
    """Return the learner that a run would start from, by name, and the remarks on it.

    Its state before the warm start is zero.
    """
    program = programs.build(train._parse(list(flags)).config)
    state = program.abstract_state()
    zeros = jax.tree.map(
        lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype), leaf.sharding), state.learner
    )
    initial = warm_start.apply(state.replace(learner=zeros), warm_start.load(program))
    return trees.named_leaves(initial.state.learner), " ".join(initial.remarks)


def files(folder):
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def test_reset_steps_keeps_the_state_and_counts_from_zero(source, tmp_path, capsys):
    before = files(source)
    folder = restarted(source, tmp_path / "new", "--epochs", "1")
    assert "at step 512, counted from 0" in capsys.readouterr().out
    assert files(source) == before
    assert [row["step"] for row in tiny.rows(folder)] == [128, 256]
    old, new = leaves(source, 512), leaves(folder, 0)
    assert old.keys() == new.keys()
    differ = {name for name in old if not np.array_equal(old[name], new[name])}
    assert differ <= {"key", "iteration", "learner/total_iterations"}
    assert {"key", "iteration"} <= differ and new["iteration"] == 0
    config = json.loads((folder / "config.json").read_text())
    assert config["seed"] == 1 and config["epochs"] == 1


def test_reset_steps_seed_changes_the_random_key(source, tmp_path):
    """Start states are not enough: where these are fixed, all seeds would train identically."""
    states = {
        seed: leaves(restarted(source, tmp_path / seed, "--epochs", "1", "--seed", seed), 0)
        for seed in ("5", str(2**32 - 1))
    }
    one, two = states.values()
    assert {name for name in one if not np.array_equal(one[name], two[name])} == {"key"}


def test_reset_steps_run_can_be_resumed(source, tmp_path):
    whole = restarted(source, tmp_path / "whole", "--epochs", "2")
    parts = restarted(source, tmp_path / "parts", "--epochs", "1")
    early = shutil.copytree(parts, tmp_path / "early")
    shutil.rmtree(early / "checkpoints" / "256")  # killed after its first state was saved
    (early / "metrics.jsonl").unlink()
    (early / "policies" / "final.npz").unlink()
    for folder in (parts, early):
        assert train.main(["--resume", str(folder), "--epochs", "2"]) == 0
        assert tiny.rows(folder) == tiny.rows(whole)
        tiny.assert_same_policy(folder, whole)


def test_init_from_copies_what_was_learned(source, tmp_path):
    parts = ("params", "obs_stats", "value_stats", "return_stats")
    folder = tiny.run(
        tmp_path / "new", "--init-from", str(source), "--epochs", "1", "--ppo.l2-init-coef", "0.1"
    )
    old, new = leaves(source, 512), leaves(folder, 0)
    for part in parts:
        names = [name for name in old if name.startswith(f"learner/{part}/")]
        assert names, part
        for name in names:
            np.testing.assert_array_equal(new[name], old[name], err_msg=name)
    actor = "params/critic/params/head/kernel"
    np.testing.assert_array_equal(new[f"learner/initial_{actor}"], old[f"learner/{actor}"])
    assert all(not data.any() for name, data in new.items() if "/mu" in name or "/nu" in name)
    assert [row["step"] for row in tiny.rows(folder)] == [128, 256]


def test_init_from_warns_of_a_damaged_checkpoint(source, tmp_path, capsys):
    other = shutil.copytree(source, tmp_path / "other")
    (other / "checkpoints" / "512" / "manifest.json").write_text("{}")
    tiny.run(tmp_path / "new", "--init-from", str(other), "--epochs", "1")
    output = capsys.readouterr().out.replace("\n", "")  # independent of the console's width
    assert "is damaged and was skipped" in output and "initialised all networks from" in output


def test_source_run_may_be_read_only(source, tmp_path, monkeypatch):
    access = os.access

    def read_only(path, mode):  # root may write everywhere
        return access(path, mode) and not (mode & os.W_OK and source in (path, *path.parents))

    monkeypatch.setattr(os, "access", read_only)
    before = files(source)
    new = tiny.run(tmp_path / "new", "--init-from", str(source), "--epochs", "1")
    again = restarted(source, tmp_path / "again", "--epochs", "1")
    assert all(tiny.rows(folder) for folder in (new, again))
    assert files(source) == before


def test_init_from_policy_file_copies_only_the_actor(source):
    file = source / "policies" / "final.npz"
    flags = tiny.flags("x", "--init-from", str(file), "--network.critic-hidden", "16")
    new, remarks = initial_learner(*flags)
    assert f"the policy {file}; any critic is initialised" in remarks
    for name, data in tiny.policy(source).items():
        place = name.replace("actor/", "params/actor/", 1)
        np.testing.assert_array_equal(new[place], data, err_msg=name)
    critic = [data for name, data in new.items() if name.startswith("params/critic/")]
    assert critic and not any(np.any(data) for data in critic)


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ("--network.activation relu", "give --network.activation swish"),
        ("--network.hidden 16", "give --network.hidden 8."),
        ("--network.distribution normal", "give --network.distribution tanh_normal"),
        ("--network.critic-hidden 16", "or take its policy alone: --init-from"),
        ("--env pendulum --backend None", "does not fit this run"),
        ("--init-from /does/not/exist", "No policy at"),
    ],
)
def test_mismatched_source_is_refused_before_writing(source, tmp_path, capsys, extra, text):
    flags = tiny.flags(tmp_path / "new", "--init-from", str(source), *extra.split())
    assert train.main(flags) == 2
    message = capsys.readouterr().err
    assert "--init-from" in message or "No policy" in message
    assert text in message
    assert not (tmp_path / "new").exists()


def test_critics_with_another_norm_are_refused():
    ours = TrainConfig(algo="sac")
    theirs = replace(ours, offpolicy=OffPolicyConfig(critic_norm="batch"))
    with pytest.raises(UserError, match="give --offpolicy.critic-norm batch"):
        warm_start._refuse_other_networks(Path("run"), theirs, ours, "critic")


@pytest.fixture(scope="module")
def poisoned(source, tmp_path_factory):
    """Return a copy of a run whose policies have one NaN among their weights."""
    folder = tmp_path_factory.mktemp("poisoned") / "run"
    shutil.copytree(source, folder)
    for file in (folder / "policies").iterdir():
        with np.load(file) as data:
            arrays = {name: data[name].copy() for name in data.files}
        name = next(name for name in arrays if name.startswith("actor/"))
        arrays[name].flat[0] = np.nan
        np.savez(file, allow_pickle=False, **arrays)
    return folder, name


@pytest.mark.parametrize("command", ["evaluate", "render", "export", "init_from", "teacher"])
def test_a_policy_with_nan_weights_is_refused(poisoned, tmp_path, capsys, command):
    folder, name = poisoned
    if command in ("init_from", "teacher"):
        flag = {"init_from": "--init-from", "teacher": "--ppo.teacher"}[command]
        arguments = tiny.flags(tmp_path / "new", flag, str(folder / "policies" / "best.npz"))
        assert train.main(arguments) == 2
        assert not (tmp_path / "new").exists()
    else:
        assert importlib.import_module(f"jaxrl.{command}").main([str(folder)]) == 2
    message = capsys.readouterr().err
    assert f"of the array {name} are not finite" in message and "best.npz" in message


def test_a_checkpoint_with_nan_weights_is_refused(source, tmp_path, capsys, monkeypatch):
    real = CheckpointManager.read

    def poisoned(self, *arguments):
        found = real(self, *arguments)
        at = [leaf.path for leaf in found.leaves].index("learner/value_stats/mean")
        found.arrays[at] = np.full_like(found.arrays[at], np.inf)
        return found

    monkeypatch.setattr(CheckpointManager, "read", poisoned)
    assert train.main(tiny.flags(tmp_path / "new", "--init-from", str(source))) == 2
    assert "of the array value_stats/mean are not finite" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_reset_steps_and_new_run_flags_need_each_other(source, tmp_path, capsys):
    assert train.main(["--resume", str(source), "--seed", "3"]) == 2
    assert "add --reset-steps" in capsys.readouterr().err
    assert train.main(tiny.flags(tmp_path / "new", "--reset-steps")) == 2
    assert "belongs to --resume" in capsys.readouterr().err


def test_off_policy_warm_start_with_and_without_replay(tmp_path):
    source = off_policy_runs.run(tmp_path / "source", "--epochs", "1")
    (step,) = (int(p.name) for p in (source / "checkpoints").iterdir())
    old, updates = leaves(source, step), tiny.rows(source)[-1]["train/n_updates"]
    again = restarted(source, tmp_path / "again", "--epochs", "1")
    # The replay buffer is past warmup: updates start at once and their count continues.
    first = tiny.rows(again)[0]
    assert first["train/n_updates"] == updates + 2 * 12 and first["time/iterations"] == 12
    restored = leaves(again, 0)
    for name in (n for n in old if n.startswith("collector/replay")):
        np.testing.assert_array_equal(restored[name], old[name], err_msg=name)
    flags = ("--init-from", str(source), "--epochs", "1")
    new = leaves(off_policy_runs.run(tmp_path / "new", *flags), 0)
    for name in (n for n in old if n.startswith(("learner/params", "learner/target_params"))):
        np.testing.assert_array_equal(new[name], old[name], err_msg=name)
    assert new["learner/updates"] == 0


def test_init_from_another_algorithm_copies_only_the_actor(tmp_path):
    same = ("--network.activation", "relu", "--network.distribution", "tanh_normal")
    source = programs.build(train._parse([*tiny.FLAGS, "--env", "pendulum", *same]).config)
    rng, params = np.random.default_rng(0), source.policy_params(source.abstract_state().learner)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), params)
    folder = tmp_path / "ppo"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.json").write_text(serialization.to_json(source.config))
    network = algorithms.network_config(source.config)
    policy_files.write(folder / "policies" / "final.npz", params, source.spec, network, {})
    flags = (*off_policy_runs.FLAGS, *same, "--init-from", str(folder))
    new, remarks = initial_learner(*flags)
    assert "any critic is initialised" in remarks
    policy = tiny.policy(folder)
    assert len(policy) > 6
    for name, data in policy.items():
        places = [n for n in new if n.endswith(name.split("/", 1)[1])]
        assert any(np.array_equal(new[place], data) for place in places), name
