"""Benchmarks run with --quick and write their results; times are not checked."""

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchmarks import (
    baselines,
    brax_worker,
    contacts,
    decomposition,
    learners,
    learning_curves,
    memory,
    off_policy,
    offline,
    playground,
    report,
    seeds,
    time_to_return,
)
from benchmarks.learning_curves import Curve
from jaxrl import train
from jaxrl.config import overrides, validate
from jaxrl.envs import brax_patches
from jaxrl.errors import UserError
from tests.helpers import recorded, tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a benchmark as `python -m` would, and returns its rows.

    It runs in this process, since imports would take longer than most benchmarks. Its subprocesses
    have one device.
    """
    jax.devices()  # this process has those of all tests
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    # The next process may need the same programs.
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    monkeypatch.chdir(ROOT)

    def run(*words, more=()):
        module = importlib.import_module(f"benchmarks.{words[0]}")
        given = [*words[1:], *more, "--quick", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", [str(module.__file__), *given])
        module.main()
        name = "-".join(words)
        plot = (tmp_path / f"{name}.png").read_bytes()
        assert plot.startswith(b"\x89PNG") and len(plot) > 5000
        data = json.loads((tmp_path / f"{name}.json").read_text())
        assert data["command"] == f"python -m benchmarks.{' '.join([*words, *more])} --quick"
        assert data["machine"]["commit"] and data["machine"]["versions"]["jax"]
        assert report.table(data["rows"]) in capsys.readouterr().out
        assert str(tmp_path) not in json.dumps(data)
        return data["rows"]

    return run


class _ThreadOutput(io.StringIO):
    """Captures the output of the thread that made it; other threads write to `stdout`."""

    def __init__(self, stdout):
        super().__init__()
        self._thread, self._stdout = threading.get_ident(), stdout

    def write(self, text):
        if threading.get_ident() == self._thread:
            return super().write(text)
        return self._stdout.write(text)


@pytest.fixture
def in_process(monkeypatch):
    """Run our own modules that benchmarks start by `subprocess.run` in this process instead."""
    start, lock = subprocess.run, threading.Lock()

    def instead(command, **options):
        if command[:2] != [sys.executable, "-m"]:
            return start(command, **options)
        name, *words = command[2:]
        with lock, monkeypatch.context() as patch:
            patch.setattr(sys, "argv", [name, *words])
            with contextlib.redirect_stdout(_ThreadOutput(sys.stdout)) as stdout:
                status = importlib.import_module(name).main()
        return subprocess.CompletedProcess(command, status or 0, stdout.getvalue(), "")

    monkeypatch.setattr(subprocess, "run", instead)


# Writes the log of a short run, of one seed or several, without importing JAX.
_STAND_IN = """
import json, pathlib, sys
words = sys.argv[1:]
value = lambda flag, default: words[words.index(flag) + 1] if flag in words else default
folder, seeds = pathlib.Path(value("--run-dir", "")), int(value("--num-seeds", 0))
names = [f"seed-{i}" for i in range(seeds)]
for place in [folder / name for name in names] or [folder]:
    place.mkdir(parents=True)
    rows = [{"step": step, "eval/mean_reward": float(step)} for step in (5, 10)]
    for row in rows:
        row |= {"time/cycle_seconds": 0.01, "time/compile_seconds": 0.5}
        row |= {"time/memory_mb": 8.0, "time/peak_memory_mb": 9.0, "time/time_elapsed": 1.0}
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
(folder / "config.json").touch()
(folder / "provenance.json").touch()
if names:
    (folder / "members.json").write_text(json.dumps(names))
"""


@pytest.fixture
def stand_in(monkeypatch):
    """Replace `python -m jaxrl.train` in new processes; return the flags that they were given.

    Flags are parsed as the command would. Starting a run takes a process ten seconds.
    """
    start, given = subprocess.Popen, []

    def instead(command, **options):
        if command[:3] != [sys.executable, "-m", "jaxrl.train"]:
            return start(command, **options)
        given.append(command[3:])
        train._parse(train._without_auto(command[3:]))
        return start([sys.executable, "-c", _STAND_IN, *command[3:]], **options)

    monkeypatch.setattr(subprocess, "Popen", instead)
    return given


@pytest.mark.slow
def test_throughput(run):
    (row,) = run("throughput")
    assert row["train steps/s"] < row["rollout steps/s"]
    assert row["train / raw"] == pytest.approx(row["train steps/s"] / row["raw steps/s"])


@pytest.mark.slow
def test_physics(run, tmp_path):
    """Of a task without physics: test_trajectories compiles MJX's functions and ours."""
    other = {"model": "ant", "environments": 2048, "mjx steps/s": 1e6, "jaxrl steps/s": 2e6}
    (tmp_path / "physics.json").write_text(json.dumps({"rows": [other], "profiles": {"ant": 1}}))
    kept, row = run("physics", more=("pendulum", "--add"))
    assert kept == other and row["commit"]
    assert json.loads((tmp_path / "physics.json").read_text())["profiles"] == {"ant": 1}
    assert row["ratio"] == pytest.approx(row["jaxrl steps/s"] / row["mjx steps/s"])


def test_trajectories(run):
    rows = run("trajectories", more=("inverted_pendulum/mjx",))
    assert [row["steps"] for row in rows] == [1, 10, 100]
    assert all(row["jaxrl − MuJoCo largest"] < 1e-3 for row in rows)
    assert 0 < rows[-1]["rounding largest"] < 1e-3


@pytest.mark.slow
def test_scaling(run):
    few, many = run("scaling")
    assert many["environments"] == 2 * few["environments"]
    assert many["peak GiB"] > few["peak GiB"] > 0


def test_distributed(run):
    (row,) = run("distributed")
    assert row["collectives per gradient step"] == 1
    assert 1 > row["8 GPUs"] > row["64 GPUs"] > row["4096 GPUs"] > 0
    assert row["bytes per gradient step"] > 10_000


def test_memory(run, monkeypatch):
    """One step is compiled; what the others would take is said by their settings."""
    measure, config = memory.temporary_bytes, train._parse(tiny.FLAGS).config
    assert 10_000 < measure(config) < 10_000_000
    given = []

    def instead(config):
        given.append((config.ppo.num_minibatches, config.ppo.accumulate, config.ppo.value_parts))
        return 2**20 * len(given)

    monkeypatch.setattr(memory, "temporary_bytes", instead)
    first, _ = run("memory")
    assert [first[f"{kind}, MiB"] for kind in memory.KINDS] == [1, 2, 3, 4]
    assert given == [(2, 1, 1), (2, 1, None), (2, 1, 2), (2, 4, 8)] + [
        *((4, 1, 1), (4, 1, None), (4, 1, 4), (4, 4, 16)),
    ]


def test_memory_of_images(run):
    (row,) = run("memory", "rrd-offline-images")
    assert row["images"] == "32 x 32 x 3"
    assert row["chunk, MiB"] > 2 * 60 * 32 * 32 * 3 / 2**20  # 60 steps are learnt from
    assert row["besides, MiB"] > 32 * 32 * 32 * 3 * 4 / 2**20  # a batch of floats


@pytest.mark.slow
def test_overlap(run):
    alone, together = run("overlap")
    assert together["environments"] == 2 * alone["environments"]
    assert together["gain"] == pytest.approx(together["steps/s"] / alone["steps/s"])


def test_populations(run, stand_in):
    together, sequential = run("populations", "cartpole")
    assert [("--num-seeds" in flags, "--seed" in flags) for flags in stand_in] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    assert (together["how"], sequential["how"]) == ("one program", "one after another")
    assert together["seeds"] == sequential["seeds"] == 2
    assert together["return (IQM)"] == sequential["return (IQM)"] == 10.0
    assert together["times faster"] == pytest.approx(sequential["seconds"] / together["seconds"])
    assert together["device MiB"] == 8.0 and together["training, s"] == pytest.approx(0.02)
    assert sequential["training, s"] == pytest.approx(0.04) and sequential["process GiB"] > 0


@pytest.mark.slow
def test_minibatches(run):
    few, many = run("minibatches", more=["cartpole"])
    assert many["steps per minibatch"] * 2 == few["steps per minibatch"]
    # Rewards are rare in a few thousand steps; without finished episodes the mean would be NaN.
    assert math.isfinite(many["return at the end"]) and many["million agent steps"] > 0


def test_decomposition(run, monkeypatch):
    """A stand-in trains; flags are parsed as `benchmarks.seeds` would, and checked."""

    lock = threading.Lock()

    def follow(command, env, on_row):
        assert command[:3] == [sys.executable, "-m", "benchmarks.seeds"]
        place = command.index("--num-seeds")
        flags = command[3:place] + command[place + 2 :]
        with lock:  # one thread for each kind, and tyro parses in one thread at a time
            overrides.check([train._parse(flags).config])
        for step in (40, 80):
            value = step * (2.0 if "--task.no-episodic-reward" in command else 1.0)
            on_row({"step": step, "returns": [value] * int(command[place + 1])})

    monkeypatch.setattr(decomposition, "follow", follow)
    (row,) = run("decomposition")
    assert row["task"] == "rrd-quick" and row["seeds"] == 1
    assert {*decomposition.KINDS, "ircr score", "rrd score", "regression score"} <= row.keys()


@pytest.mark.slow
def test_seeds_print_a_return_for_each_after_every_evaluation(monkeypatch, capsys, no_plots):
    monkeypatch.setattr(sys, "argv", ["seeds", *tiny.FLAGS, "--num-seeds", "2"])
    seeds.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["step"] for row in rows] == [256, 512] and rows[0]["seconds"] > 0
    assert all(len(row["returns"]) == 2 and min(row["returns"]) >= 1 for row in rows)


def test_decomposition_compares_returns_at_equal_steps():
    def two(*values):
        return {"0": list(zip((10, 20, 30), values, strict=False)), "1": [(10, 1.0), (20, 3.0)]}

    row = decomposition.row(
        "ant", {"dense": two(0.0, 7.0, 99.0), "episodic": two(0.0, -3.0), "rrd": two(0.0, 1.0)}
    )
    assert row["million steps"] == 20e-6 and row["dense"] == "5 ± 2"
    assert row["rrd score"] == pytest.approx((2.0 - 0.0) / (5.0 - 0.0))


def test_decomposition_keeps_other_tasks_and_their_commits(tmp_path):
    assert decomposition.read_results(tmp_path, ["ant"]) == ({}, {})
    found = {"curves": {"ant": {"rrd": {}}, "hopper": {"rrd": {"0": [[10, 1.0]]}}}}
    found["commits"] = {"ant": "aaa", "hopper": "bbb"}
    (tmp_path / "decomposition.json").write_text(json.dumps(found))
    curves, commits = decomposition.read_results(tmp_path, ["ant"])
    assert curves == {"hopper": {"rrd": {"0": [[10, 1.0]]}}} and commits == {"hopper": "bbb"}


def test_offline(run, monkeypatch):
    """Stand-ins train and record; their flags are parsed as the commands would."""
    commands, lock = [], threading.Lock()

    def follow(command, env, on_row):
        place = command.index("--num-seeds")
        flags = command[3:place] + command[place + 2 :]
        with lock:
            commands.append(flags)
            config = train._parse(flags).config
        assert config.offline and config.evaluates
        for value in (0.0, 40.0, 50.0, 60.0):
            on_row({"step": 1, "returns": [value] * int(command[place + 1])})

    monkeypatch.setattr(offline, "prepare", lambda *_: {"expert": 110.0, "random": 10.0})
    monkeypatch.setattr(offline, "follow", follow)
    (row,) = run("offline")
    assert len(commands) == 7 and {words[0] for words in commands} == set(offline.METHODS)
    assert row == {"task": "pendulum", "data": "mixed", "bc": "40 ± 0"} | {
        f"{method} {reward}": "40 ± 0" for method in ("td3-bc", "iql") for reward in offline.REWARDS
    }


def test_offline_prepares_recordings_once(tmp_path, monkeypatch):
    done = []

    def run(module, *words):
        done.append((module, words[0]))
        out = words[words.index("--out" if "--out" in words else "--run-dir") + 1]
        if module == "jaxrl.record":
            return recorded.write_bandit(Path(out), episodes=3)
        Path(out).mkdir()
        (Path(out) / "metrics.jsonl").write_text('{"step": 1, "eval/mean_reward": 5.0}\n')

    monkeypatch.setattr(offline, "_run", run)
    ends = offline.prepare("pendulum", ["mixed"], tmp_path / "pendulum", quick=True)
    assert ends["expert"] == 5.0 and ends["random"] < 0
    assert [module for module, _ in done] == ["jaxrl.train"] * 2 + ["jaxrl.record"] * 4
    assert offline.prepare("pendulum", ["mixed"], tmp_path / "pendulum", quick=True) == ends
    assert len(done) == 6
    mixed = (tmp_path / "pendulum" / "mixed").iterdir()
    assert sorted(file.stem for file in mixed) == ["expert", "medium", "random"]


def test_playground_trains_and_then_reads(run, stand_in, tmp_path, monkeypatch):
    """A stand-in trains two seeds; the second call trains nothing."""
    monkeypatch.setattr(playground, "RUNS", tmp_path / "runs")
    words = ("CheetahRun", "--seeds", "2")
    (row,) = run("playground", more=words)
    assert row["task"] == "CheetahRun" and row["seeds"] == 2 and row["published"] == 883
    assert row["end"] == 10 and row["10 M"] is None and row["seconds"] > 0
    assert run("playground", more=words) == [row]
    assert len(stand_in) == 1


def test_playground_adds_to_earlier_results_and_shows_others(run, stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(playground, "RUNS", tmp_path / "runs")
    curve = {"steps": [50_000_000], "seconds": [9.0], "returns": [[600.0, 700.0]]}
    for name, tasks in (("playground", ["WalkerRun"]), ("ppo", ["CheetahRun", "FishSwim"])):
        text = json.dumps({"curves": dict.fromkeys(tasks, curve)})
        (tmp_path / f"{name}.json").write_text(text)
    words = ("CheetahRun", "--seeds", "1", "--add", "--beside", "ppo")
    cheetah, walker = run("playground", more=words)
    assert (cheetah["task"], walker["task"]) == ("CheetahRun", "WalkerRun")
    assert cheetah["end"] == 10 and walker["end"] == 650
    assert cheetah["ppo, 50 M"] == 650 and "ppo, 50 M" not in walker


def test_playground_saves_other_tasks_when_one_fails(run, tmp_path, monkeypatch):
    curve = Curve([10_000_000], [9.0], [[600.0]])

    def train(words, *_):
        if "FishSwim" in words[0]:
            raise RuntimeError("out of memory")
        return curve

    monkeypatch.setattr(learning_curves, "train", train)
    with pytest.raises(UserError, match="FishSwim failed"):
        run("playground", more=("FishSwim", "CheetahRun", "WalkerRun"))
    saved = learning_curves.read_results(tmp_path / "playground.json")
    assert saved == {"CheetahRun": curve, "WalkerRun": curve}


def test_returns_are_those_at_equal_steps():
    curve = Curve([5_000_000, 10_100_000, 31_000_000], [1, 2, 3], [[1], [2], [3]])
    assert learning_curves.at(curve, 10e6) == [2] and learning_curves.at(curve, 30e6) == [2]
    assert learning_curves.at(curve, 31e6) == [3] and learning_curves.at(curve, 60e6) is None


def test_playground_means_need_all_tasks():
    tasks = playground.chosen_tasks(["dmc"])
    assert len(tasks) == 25
    curves = {t: Curve([60_000_000], [9.0], [[n, n + 2]]) for n, t in enumerate(tasks)}
    *_, mean, iqm = playground.rows_of(curves)
    others = [n for n, t in enumerate(tasks) if t not in playground.NOT_IN_REPPO]
    assert mean["task"] == "mean of 23" and mean["60 M"] == pytest.approx(sum(others) / 23 + 1)
    assert iqm["seconds"] == 23 * 9
    del curves["CheetahRun"]
    assert len(playground.rows_of(curves)) == 24


def test_learners_train_and_then_read(run, stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(learners, "RUNS", tmp_path / "runs")
    words = ("ant", "hopper", "--learners", "ppo", "fasttd3", "--seeds", "2")
    rows = run("learners", more=words)
    pairs = [(task, learner) for task in ("ant", "hopper") for learner in ("ppo", "fasttd3")]
    assert [(row["task"], row["learner"]) for row in rows] == pairs
    assert all(row["seeds"] == 2 and row["end"] == 10 and row["commit"] for row in rows)
    assert [words[0] for words in stand_in] == ["ant", "td3-ant", "hopper", "td3-hopper"]
    assert run("learners", more=words) == rows
    assert len(stand_in) == 4


def test_learners_name_the_time_to_nearly_the_best_return():
    """The best of both is 110, the lowest 10: nine tenths of the way is 100."""
    curves = {
        "ppo ant": Curve([1, 2, 3], [10.0, 20.0, 30.0], [[10, 30], [95, 105], [105, 115]], "a"),
        "sac ant": Curve([1, 2], [5.0, 6.0], [[10, 10], [80, 119]], "b"),
        "td3 hopper": Curve([], [], [], "c"),  # ended before it was evaluated
    }
    ppo, sac = learners.rows_of(curves, ["ant", "hopper"])
    assert (ppo["s to 90 %"], sac["s to 90 %"]) == (20.0, None)
    assert (ppo["end"], ppo["commit"], sac["end"], sac["commit"]) == (110, "a", 99.5, "b")


@pytest.mark.parametrize("learner", learners.LEARNERS)
@pytest.mark.parametrize("quick", [False, True])
def test_learners_have_valid_settings(learner, quick):
    for task in learners.TASKS:
        config = train._parse(learners.command_of(learner, task, quick)).config
        assert validate.validate(config) == []


def test_runs_end_at_their_limit():
    waits = [sys.executable, "-c", "import time; time.sleep(60)"]
    began = time.monotonic()
    learning_curves._run(waits, limit=0.1)
    assert time.monotonic() - began < 30


def test_curves_of_interrupted_runs_count_from_their_first_start(tmp_path, monkeypatch):
    """Settings are written again when a run is resumed, and provenance is not."""
    folder = tmp_path / "run"

    def interrupted(command, limit):
        folder.mkdir()
        (folder / "provenance.json").touch()
        began = time.time() + 5.0
        os.utime(folder / "provenance.json", (began, began))
        raise RuntimeError("the machine went away")

    def continued(command, limit):
        (folder / "config.json").touch()
        row = {"step": 9, "eval/mean_reward": 2.0, "time/time_elapsed": 30.0}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")

    monkeypatch.setattr(learning_curves, "_run", interrupted)
    with pytest.raises(RuntimeError, match="went away"):
        learning_curves.train(["ant"], folder, seeds=1)
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | {"began": record["began"] - 1000}))
    monkeypatch.setattr(learning_curves, "_run", continued)
    curve = learning_curves.train(["ant"], folder, seeds=1)
    assert curve.returns == [[2.0]] and 1035 <= curve.seconds[0] < 1060
    assert learning_curves.train(["ant"], folder, seeds=1) == curve
    for words, number in ((["ant", "--seed", "1"], 1), (["ant"], 2)):
        with pytest.raises(UserError, match="run is of another command"):
            learning_curves.train(words, folder, number)
    (tmp_path / "run.json").unlink()
    with pytest.raises(UserError, match="run is of another command"):
        learning_curves.train(["ant"], folder, seeds=1)


def test_runs_that_end_before_they_begin_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(learning_curves, "_run", lambda *_: None)
    for _ in range(2):
        with pytest.raises(UserError, match="0.1 s were too short to begin"):
            learning_curves.train(["ant"], tmp_path / "run", seeds=1, limit=0.1)


def test_follow_reports_lines_as_they_arrive():
    rows_seen = []
    code = "print('{\"a\": 1}', flush=True); print('words'); print('{\"a\": 2}')"
    rows = baselines.follow([sys.executable, "-c", code], dict(os.environ), rows_seen.append)
    assert [row["a"] for row in rows] == [row["a"] for row in rows_seen] == [1, 2]
    with pytest.raises(RuntimeError, match="no good"):
        baselines.follow([sys.executable, "-c", "raise SystemExit('no good')"], dict(os.environ))


@pytest.mark.slow
def test_contact_solver_is_compared_with_that_of_brax(run, monkeypatch):
    called = []

    def recorded(force):
        def call(*arguments):
            called.append(force.__module__)
            return force(*arguments)

        return call

    both = contacts.forces()
    monkeypatch.setattr(contacts, "forces", lambda: {k: recorded(v) for k, v in both.items()})
    theirs, ours = run("contacts", more=["inverted_pendulum"])
    assert list(dict.fromkeys(called)) == ["brax.generalized.constraint", brax_patches.__name__]
    assert (theirs["forces by"], ours["forces by"]) == ("brax", "jaxrl")
    assert ours["times brax"] * theirs["steps/s"] == pytest.approx(ours["steps/s"])
    assert ours["apart"] < 1e-4


@pytest.mark.parametrize(
    "words, message",
    [
        (["pusher", "swimer"], "'swimer' is not a task of Brax. Did you mean 'swimmer'?"),
        (["cartpole"], "'cartpole' is not a task of Brax"),
        (["--num-envs", "0"], "--num-envs must be at least 1, not 0"),
    ],
)
def test_contacts_refuses_unknown_tasks_and_sizes(monkeypatch, capsys, words, message):
    monkeypatch.setattr(sys, "argv", ["contacts", *words])
    with pytest.raises(SystemExit):
        contacts.main()
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_off_policy_is_compared_with_brax(run, monkeypatch):
    """Brax's side is a stand-in: `test_baselines_brax` runs its process, with PPO."""

    start = subprocess.run

    def instead(command, **options):
        if command[:3] != [sys.executable, "-m", "benchmarks.brax_worker"]:
            return start(command, **options)
        assert {"--sac", "--full-replay"} <= set(command)
        row = {"steps": 2000, "return": 1.0, "std": 0.0, "steps/s": 40.0}
        return subprocess.CompletedProcess(command, 0, f"words\n{json.dumps(row)}\n", "")

    monkeypatch.setattr(off_policy.subprocess, "run", instead)
    ours, theirs = run("off_policy")
    assert ours["gradient steps/s"] == pytest.approx(ours["steps/s"] / 8)
    assert theirs["steps/s"] == 40.0 and theirs["gradient steps/s"] == pytest.approx(5.0)
    assert ours["times brax"] * theirs["gradient steps/s"] == pytest.approx(
        ours["gradient steps/s"]
    )


def test_settings_of_sac_fit_brax(monkeypatch):
    from brax.training import replay_buffers
    from brax.training.agents.sac import train as sac

    queue = replay_buffers.UniformSamplingQueue
    monkeypatch.setattr(queue, "init", queue.init)  # undone after the test
    brax_worker.fill_replay()
    replay = queue(max_replay_size=8, dummy_data_sample=jnp.zeros(2), sample_batch_size=4)
    assert replay.size(replay.init(jax.random.PRNGKey(0))) == 8
    for task, settings in brax_worker.SETTINGS_OF_SAC.items():
        inspect.signature(sac.train).bind(environment=task, **{"episode_length": 9} | settings)


def test_time_to_return(run, stand_in):
    cold, warm = run("time_to_return")
    assert [row["start"] for row in (cold, warm)] == ["cold", "warm"] and len(stand_in) == 2
    for row in (cold, warm):
        assert row["return then"] >= row["return"] and row["environment steps"] == 5
        assert row["first log row, s"] <= row["reached after, s"]


def test_time_to_return_keeps_other_goals_and_starts():
    def run(preset, start, seconds):
        return {"preset": preset, "target": 1.0, "start": start, "seconds": seconds}

    earlier = [run("ant", "cold", 30.0), run("ant", "warm", 10.0), run("humanoid", "warm", 40.0)]
    found = time_to_return.merge(earlier, [run("ant", "cold", 20.0), run("humanoid", "cold", 9)])
    assert [(one["preset"], one["start"], one["seconds"]) for one in found] == [
        ("ant", "cold", 20.0),
        ("ant", "warm", 10.0),
        ("humanoid", "cold", 9),
        ("humanoid", "warm", 40.0),
    ]


@pytest.mark.parametrize("ours", ["ant=6000", "--cold ant=6000", "ant=6000 --cold", "--cold", ""])
def test_time_to_return_passes_on_flags_after_two_dashes(ours):
    found, extra = time_to_return.read([*ours.split(), "--", "--seed", "1", "--limit"])
    assert extra == ["--seed", "1", "--limit"]
    assert found.goals == ([("ant", 6000.0)] if "ant" in ours else [])
    assert found.cold == ("--cold" in ours) and found.limit == float("inf")


@pytest.mark.parametrize("word", ["ant", "ant=", "ant=fast", "ant=nan", "ant=inf"])
def test_target_return_must_be_a_finite_number(word, capsys):
    with pytest.raises(SystemExit):
        time_to_return.read([word])
    assert f"as ant=6000, not '{word}'" in capsys.readouterr().err


@pytest.mark.parametrize("target, lines", [(200.0, [100.0]), (0.0, [0.0]), (-150.0, [-150.0])])
def test_returns_are_drawn_in_percent_of_positive_targets_only(target, lines, tmp_path):
    curve = [[3.0, 100, target - 50.0], [5.0, 200, target]]
    seen = {"preset": "pendulum", "start": "cold", "target": target, "curve": curve}
    drawn = []

    def on(axes):
        time_to_return.draw([seen])(axes)
        drawn.extend(line.get_ydata()[-1] for line in axes.get_lines())

    report.save("drawn", [], tmp_path, panels=[on])
    assert drawn == lines * 2  # the curve ends at the line of its target


def test_time_to_return_stops_a_run_at_the_limit(tmp_path, monkeypatch):
    """The stand-in for training would run for ten minutes if it were not stopped."""
    start = subprocess.Popen
    monkeypatch.setattr(
        time_to_return.subprocess,
        "Popen",
        lambda command, **more: start(["sleep", "600"], **more),
    )
    began = time.monotonic()
    seen = time_to_return.time_run("ant", 1.0, 0.5, tmp_path, tmp_path / "run", [])
    assert (seen["seconds"], seen["steps"]) == (None, 0)
    assert time.monotonic() - began < 300


@pytest.mark.slow
def test_baselines_brax(run, in_process):
    ours, theirs = run("baselines", "brax")
    assert (ours["system"], theirs["system"]) == ("jaxrl", "brax")
    assert ours["steps/s"] > 0 and theirs["steps/s"] > 0


@pytest.mark.slow
@pytest.mark.skipif(
    not importlib.util.find_spec("stable_baselines3"), reason="needs the extra jaxrl[baselines]"
)
def test_baselines_sb3(run, in_process):
    ours, theirs = run("baselines", "sb3")
    assert theirs["million steps"] < ours["million steps"]


def test_baselines_store_the_commit_of_every_run(tmp_path):
    path = tmp_path / "baselines-brax.json"
    assert baselines.read_results(path) == ({}, {})
    curves = {"ant": {"jaxrl": {"0": []}, "brax": {"0": []}}}
    path.write_text(json.dumps({"curves": curves, "machine": {"commit": "old"}}))
    found, commits = baselines.read_results(path)
    found["ant"]["jaxrl"]["1"] = []
    baselines.add_commits(commits, found, "new")
    assert commits == {"ant": {"jaxrl": {"0": "old", "1": "new"}, "brax": {"0": "old"}}}
    path.write_text(json.dumps({"curves": found, "machine": {"commit": "new"}, "commits": commits}))
    assert baselines.read_results(path) == (found, commits)


@pytest.fixture
def call_baselines(tmp_path, monkeypatch):
    """Return a function that compares fake runs, and the list of the runs it made."""
    done = []

    def runs(name):
        def run(*words):
            done.append((name, words[words.index("fast") + 1]))
            return [{"steps": 100, "return": 1.0, "steps/s": 10.0, "seconds": 2.0, "wall": 3.0}]

        return run

    def call(*words):
        given = ["baselines", "brax", "fast", "--seeds", "2", "--out", str(tmp_path), *words]
        monkeypatch.setattr(sys, "argv", given)
        baselines.main()
        return json.loads((tmp_path / "baselines-brax.json").read_text())["rows"]

    monkeypatch.setattr(baselines, "run_jaxrl", runs("jaxrl"))
    monkeypatch.setattr(baselines, "run_baseline", runs("brax"))
    return call, done


def test_baselines_adds_missing_runs_to_earlier_results(tmp_path, call_baselines):
    call, done = call_baselines
    assert [row["system"] for row in call("--only", "brax")] == ["brax"]
    assert done == [("brax", 0), ("brax", 1)]
    assert [row["system"] for row in call("--add")] == ["jaxrl", "brax"]
    assert done[2:] == [("jaxrl", 0), ("jaxrl", 1)]
    (tmp_path / "baselines-brax.png").unlink()
    assert len(call("--add")) == 2 and len(done) == 4, "no run was missing"
    assert (tmp_path / "baselines-brax.png").exists(), "the plot was missing"
    with pytest.raises(SystemExit):
        call("--only", "sb3")


def test_concurrent_runs_are_marked_when_later_runs_were_alone(call_baselines):
    call, _ = call_baselines
    call("--only", "brax", "--side-by-side")
    ours, theirs = call("--add")
    assert ours["steps/s"] == 10.0 and ours["s until brax's IQM"] == 2.0
    assert "steps/s" not in theirs and theirs["s until brax's IQM, concurrent runs"] == 2.0


def test_time_to_reach_is_that_of_the_first_evaluation():
    run = [{"seconds": 1.0, "return": 5.0}, {"seconds": 2.0, "return": 9.0}]
    assert baselines.time_to_reach(run, 5.0) == 1.0
    assert baselines.time_to_reach(run, 6.0) == 2.0
    assert baselines.time_to_reach(run, 10.0) is None


def test_table_has_a_column_for_every_key():
    rows = [{"a": 1234567, "b": 0.12345}, {"a": None, "c": "word"}]
    assert report.table(rows).splitlines() == [
        "| a | b | c |",
        "|---|---|---|",
        "| 1,234,567 | 0.123 | - |",
        "| - | - | word |",
    ]


def test_quick_results_have_their_own_folder():
    parser = report.parser("A benchmark.")
    assert parser.parse_args([]).out == report.RESULTS
    assert parser.parse_args(["--quick"]).out == Path("runs/benchmarks")
    assert parser.parse_args(["--quick", "--out", "there"]).out == Path("there")


@pytest.mark.parametrize(
    "words",
    [
        ["baselines", "brax", "ant", "nosuch"],
        ["decomposition", "ant", "nosuch"],
        ["throughput", "pendulum", "nosuch"],
        ["time_to_return", "ant=6000", "nosuch=1"],
    ],
)
def test_unknown_tasks_are_refused_before_anything_runs(words, tmp_path, monkeypatch):
    module = importlib.import_module(f"benchmarks.{words[0]}")
    given = [*words[1:], "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [str(module.__file__), *given])
    with pytest.raises(UserError, match="nosuch"):
        module.main()
    assert not list(tmp_path.iterdir())
