"""Several processes on this machine train one run, as one process with as many devices would."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxrl import train
from jaxrl.config import overrides
from jaxrl.training import fit
from tests.training.distributed_runs import CONTINUED, LAYOUTS, PLAIN, RUNS
from tests.training.distributed_worker import DIFFER, FAILS, continue_resharded
from tools import kill_soak

ROOT = Path(__file__).parents[2]
LONG = [*PLAIN, "--epochs", "12"]
pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("shared_programs", "no_plots")]


def environment(devices=None):
    """Return the variables of a process, with a number of CPU devices if that is given."""
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ["XLA_FLAGS"])
    return os.environ | {
        "XLA_FLAGS": flags,
        **({"JAX_NUM_CPU_DEVICES": str(devices)} if devices else {}),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONPATH": str(ROOT),
    }


def together(number, devices, folder, *scenarios, start="flags"):
    """Run scenarios in several processes; return the results and output of each process."""
    folder.mkdir(exist_ok=True)
    layout = [str(number), str(devices), str(folder), start]
    command = [sys.executable, "-m", "tests.training.distributed_worker", *layout, *scenarios]
    with subprocess.Popen(
        command,
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            statuses = json.loads(process.communicate(timeout=600)[0])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    outputs = [(folder / f"printed-{rank}").read_text() for rank in range(number)]
    expected = {FAILS: [3, *[1] * (number - 1)], DIFFER: [2] * number}
    assert statuses == expected.get(scenarios[-1], [0] * number), "\n".join(outputs)
    results = [json.loads((folder / f"results-{rank}.json").read_text()) for rank in range(number)]
    return [each | {"printed": output} for each, output in zip(results, outputs, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A function that trains a run in this process, once, and returns its folder."""
    parent, made = tmp_path_factory.mktemp("alone"), {}

    def train_once(name, devices):
        folder = parent / f"{name}-{devices}"
        if folder not in made:
            flags = ["--devices", str(devices), "--run-dir", str(folder)]
            command = train._parse([*(RUNS | LAYOUTS | {"long": LONG})[name], *flags])
            members = overrides.members(command.config, command.num_seeds)
            made[folder] = fit.fit(members if len(members) > 1 else members[0], verbose=0)
        return folder

    return train_once


def rows(folder):
    """Return all metrics of a run, and of its members, without times."""
    found = {}
    for file in sorted([*folder.glob("metrics.jsonl"), *folder.glob("*/metrics.jsonl")]):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[str(file.parent.relative_to(folder)), row["step"]] = {
                name: value for name, value in row.items() if not name.startswith("time/")
            }
    return found


def episodes(folder):
    """Return the returns and lengths of all training episodes of a run."""
    lines = (folder / "monitor.csv").read_text().splitlines()
    return [line.split(",")[:2] for line in lines[2:]]


SCENARIOS = [
    *("callback_stops", "separate_folders", "too_few_members"),
    *("recorded_data", "full_disk", "damaged_part", "gymnasium_continues"),
    *("sigterm_to_0", "sigint_to_1", DIFFER),
]


def test_two_and_four_processes(alone, tmp_path):
    """One test: groups of processes continue what others have saved.

    Starting processes and compiling takes longer than all checks together.
    """
    saved = {1: alone("plain-ppo", 1), 2: tmp_path / "2x1" / "ppo", 4: tmp_path / "4x1/plain-ppo"}
    restored = {number: [] for number in saved}  # what each process said of it

    def group(number, devices, *scenarios, after=(), start="flags"):
        folder = tmp_path / f"{number}x{devices}"
        for source in after:
            shutil.copytree(saved[source], folder / f"from-{source}")
        continued = [f"from-{source}" for source in after]
        results = together(number, devices, folder, *continued, *scenarios, start=start)
        for source in after:
            complete(folder / f"from-{source}")
            restored[source] += [each[f"from-{source}"] for each in results]
        return folder, results

    four = group(4, 1, *LAYOUTS, "sums", "continues", FAILS, after=[1], start="Slurm")
    assert "Slurm started 4 tasks: training together on 4 processes" in four[1][0]["printed"]
    failure_of_process_0_is_printed(four[1])
    assert rows(four[0] / "stopped") == rows(four[0] / "plain-ppo")
    check_two(*group(2, 1, *RUNS, "plain-sac", *SCENARIOS, after=[1, 4]), alone)
    pairs = group(2, 2, *LAYOUTS, "sums")
    for name in LAYOUTS:
        assert rows(pairs[0] / name) == rows(four[0] / name), name
    # What replay and memory need of several processes, the others have shown.
    few = ("plain-ppo", "plain-population")
    eight = group(4, 2, *few, "sums", after=[2], start="MPI")
    for folder, results in (four, pairs):
        same_numbers(folder, results, alone, LAYOUTS)
    same_numbers(*eight, alone, few)
    for source, run in saved.items():
        here = shutil.copytree(run, tmp_path / f"from-{source}")
        step, state, warnings = continue_resharded(here, "--devices", "1")
        complete(here)
        assert len(warnings) == (source > 1)  # of devices
        assert len(restored[source]) == {1: 4 + 2, 2: 4, 4: 2}[source]
        for each in restored[source]:
            assert each[:2] == [step, state]
            assert "The number of devices changed" in each[2][0]


def check_two(folder, results, alone):
    """Two processes with one device each compute what one process computes, bit for bit.

    A sum of two numbers does not depend on their order.
    """
    fit.resume(alone(CONTINUED, 2), epochs=3, verbose=0)
    for name in (*RUNS, "plain-sac"):
        assert [each[name] for each in results] == ["done", "done"]
        assert rows(folder / name) == rows(alone(name, 2)), name
    assert len(rows(folder / CONTINUED)) == 6
    assert episodes(folder / "gym") == episodes(alone("gym", 2)) != []
    only_process_0_writes_into_the_run_folder(folder / "ppo")
    checkpoint_resumes_on_one_process(folder / "rrd", alone("rrd", 2))
    ends = ["stopped at 512, logged [256, 512]", "stopped at 512, logged []"]
    assert [each["callback_stops"] for each in results] == ends
    for each in results:
        assert OTHER_SEED in each["printed"]
        for scenario, text in REFUSED.items():
            assert each[scenario].startswith("UserError") and text in each[scenario]
    # A full disk of one process stops all; the checkpoint before it stays.
    assert all("No space left on device" in each["full_disk"] for each in results)
    assert "process 1" in results[0]["full_disk"]
    assert [path.name for path in (folder / "full" / "checkpoints").iterdir()] == ["512"]
    # A checkpoint of which one part is damaged is skipped by all.
    assert all(each["damaged_part"].startswith("restored 512: ['checkpoint") for each in results)
    # Each process reads the first part, and the rows that are its own.
    assert results[0]["parts_read"] == ["1024", "512"]
    assert results[1]["parts_read"] == ["1024", "1024/process-1", "512", "512/process-1"]
    for scenario, number in (("sigterm_to_0", 15), ("sigint_to_1", 2)):
        end = f"signal {number} at 256, saved ['256']"
        assert [each[scenario] for each in results] == [end, end]


def failure_of_process_0_is_printed(results):
    """JAX would end the others without a word of the run."""
    for rank in range(1, len(results)):
        end = f"error: process 0 of 4 failed; process {rank} stops. Continue with: jaxrl.train"
        assert end in results[rank]["printed"]


def complete(run):
    steps = [step for _, step in rows(run)]
    assert steps == list(range(256, steps[-1] + 1, 256)) and len(steps) >= 6


def same_numbers(folder, results, alone, names):
    """From three devices on, several processes add in another order than one process does.

    So the last bits of sums over devices differ, by no more than rounding allows. Nothing else
    does: populations, which add nothing over devices, are equal.
    """
    processes, devices = map(int, folder.name.split("x"))
    number = processes * devices
    for each in results:
        assert [each[name] for name in names] == ["done"] * len(names)
        assert 0 < each["sums"] <= number - 1
    for name in names:
        ours, theirs = rows(folder / name), rows(alone(name, number))
        assert ours.keys() == theirs.keys() and len(ours) >= 2
        if name == "plain-population":
            assert ours == theirs
            continue
        for place, row in theirs.items():
            expected = {key: pytest.approx(x, rel=1e-4, abs=1e-5) for key, x in row.items()}
            assert ours[place] == expected, (folder.name, name, place)


OTHER_SEED = "error: Processes differ in --seed: process 0 has 0; process 1 has 1. "
REFUSED = {
    "separate_folders": "Process 1 cannot see the run folder",
    "too_few_members": "Several processes use all of their 2 devices",
    "recorded_data": "--data.path: several processes cannot share recorded data yet",
}


def only_process_0_writes_into_the_run_folder(run):
    made = {path.name for path in run.iterdir()}
    assert {"metrics.jsonl", "evaluations.npz", "policies", "report.html"} <= made
    assert (run / "command.txt").read_text().count("\n") == 1
    assert not list(run.glob(".shared-*"))


def checkpoint_resumes_on_one_process(ours, theirs):
    """With replay; the log continues as that of a run on one process."""
    for run in (ours, theirs):
        fit.resume(run, epochs=3, verbose=0)
    assert len(rows(ours)) == 6 and rows(ours) == rows(theirs)


def launched(folder):
    """Start two processes by the command for one machine."""
    command = [sys.executable, "-m", "jaxrl.launch", "--processes", "2", "--cpu-devices", "1"]
    return subprocess.Popen(
        [*command, "--", *LONG, "--run-dir", str(folder), "--resume", "auto"],
        env=environment(1),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ranks(process):
    """Return the process ids of a launcher's children, in order."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]


def end(process):
    """End a launcher and its children, where a test has failed."""
    if process.poll() is None:
        process.terminate()
        process.communicate()


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


def wait_for_rows(folder, number):
    until = time.monotonic() + 120
    while len(rows(folder)) < number and time.monotonic() < until:
        time.sleep(0.02)


def test_killed_process_0_is_named_and_sigterm_to_one_stops_all(alone, stack, tmp_path):
    """Rank 0 is killed; the same command continues, until rank 1 is asked to stop."""
    folder = tmp_path / "run"
    process = launched(folder)
    stack.callback(end, process)
    wait_for_rows(folder, 4)
    os.kill(ranks(process)[0], signal.SIGKILL)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + signal.SIGKILL
    assert "jaxrl.launch: process 0 of 2 was ended by signal 9" in output
    lost = "[1] error: process 0 of 2 was lost; process 1 stops. Continue with: "
    launcher = "python -m jaxrl.launch --processes 2 --cpu-devices 1 --"
    assert f"{lost}{launcher} --resume {folder}" in output
    process = launched(folder)
    stack.callback(end, process)
    wait_for_rows(folder, len(rows(folder)) + 3)
    os.kill(ranks(process)[1], signal.SIGTERM)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + signal.SIGTERM, output
    last = max(step for _, step in rows(folder))
    assert (folder / "checkpoints" / str(last)).is_dir()
    assert_begins_as(folder, alone("long", 2))


def assert_begins_as(folder, whole):
    """A run that was stopped has the first rows of one that was not."""
    ours, theirs = list(rows(folder).items()), list(rows(whole).items())
    assert 4 <= len(ours) < len(theirs)
    assert ours == theirs[: len(ours)]


def test_kills_of_any_rank_lose_nothing(tmp_path):
    """At random moments, each followed by a start of the same command.

    `tools/kill_soak.py --processes 2` makes as many kills as one likes.
    """
    flags = [*PLAIN, "--epochs", "6"]
    command = [sys.executable, "-m", "tests.training.kill_ranks", str(tmp_path), "8", "0", *flags]
    # Starts are quick when traced and compiled programs are cached.
    cached = {"JAXRL_CACHE_PROGRAMS": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with subprocess.Popen(
        command, env=environment(1) | cached, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        kills = [json.loads(line) for line in process.stdout or ()]
    assert process.returncode == 0
    assert len(kills) == 8 and {each["rank"] for each in kills} == {0, 1}
    reported = 0
    for each in kills:
        assert each["forced"] == []  # all others have ended by themselves
        other = 1 - each["rank"]
        if each["met"] and each["statuses"][other]:
            # Before their connection stands, and on a busy machine, JAX's abort may come first.
            assert each["statuses"][other] in (1, -signal.SIGABRT)
            reported += f"process {each['rank']} of 2 was lost" in each["printed"][other]
    finished = sorted(tmp_path.glob("run-*/"))
    assert sum(each["met"] for each in kills) > 2 and reported > 0 and finished
    for run in finished:
        assert kill_soak.differences(tmp_path / "whole", run) == []


def test_two_hosts_train_until_one_vanishes(alone, tmp_path):
    """Network namespaces with an address each; the link between them is cut."""
    script = f"""
        if [ $RANK = 1 ]; then
            (until [ "$(wc -l < {tmp_path}/run/metrics.jsonl)" -ge 4 ]; do sleep 0.1; done
             ip link set veth1 down) 2> {tmp_path}/link &
        fi
        {sys.executable} -m jaxrl.train {" ".join(LONG)} --run-dir {tmp_path}/run --quiet \
            --distributed.coordinator 10.7.0.1:8476 --distributed.processes 2 \
            --distributed.process $RANK --distributed.heartbeat 10 2> {tmp_path}/errors-$RANK
    """
    done = subprocess.run(
        ["bash", "tests/training/two_hosts.sh", "bash", "-c", script],
        env=environment(1),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode == 77:
        pytest.skip(f"network namespaces are not permitted here: {done.stderr.strip()}")
    assert done.returncode == 1, done.stdout + done.stderr
    for rank in (0, 1):
        end = f"error: process {1 - rank} of 2 was lost; process {rank} stops. Continue with: "
        errors = (tmp_path / f"errors-{rank}").read_text()
        assert end in errors and "(the same command in all 2 processes)" in errors
    assert_begins_as(tmp_path / "run", alone("long", 2))


@pytest.mark.parametrize("rank", ["0", "1"])
def test_process_that_never_starts_is_a_clear_error(rank):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    flags = ["--distributed.coordinator", address, "--distributed.processes", "2"]
    command = [sys.executable, "-m", "jaxrl.train", *RUNS["ppo"], *flags]
    done = subprocess.run(
        [*command, "--distributed.process", rank, "--distributed.timeout", "2"],
        env=environment(1),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert f"error: Only some of 2 processes connected to {address} within 2 s." in done.stderr
