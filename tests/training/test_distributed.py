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

import numpy as np
import pytest

from jaxrl import train
from jaxrl.config import overrides
from jaxrl.training import fit
from tests.training.distributed_runs import CONTINUED, PLAIN, RUNS
from tests.training.distributed_worker import FAILS, continue_resharded

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("shared_programs", "no_plots")]


def environment(devices):
    """Return the variables of a process with a number of CPU devices."""
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ["XLA_FLAGS"])
    return os.environ | {
        "XLA_FLAGS": flags,
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "PYTHONPATH": str(ROOT),
    }


def together(number, devices, folder, *scenarios):
    """Run scenarios in several processes; return what each process told of them, and printed."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.training.distributed_worker", str(port), str(number)]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(folder), *scenarios],
            env=environment(devices),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(number)
    ]
    try:
        outputs = [process.communicate(timeout=500)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    expected = [3, *[1] * (number - 1)] if FAILS in scenarios else [0] * number
    assert [process.returncode for process in started] == expected, "\n".join(outputs)
    told = [json.loads((folder / f"told-{rank}.json").read_text()) for rank in range(number)]
    return [each | {"printed": output} for each, output in zip(told, outputs, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A function that trains a run in this process, once, and returns its folder."""
    parent, made = tmp_path_factory.mktemp("alone"), {}

    def train_once(name, devices):
        folder = parent / f"{name}-{devices}"
        if folder not in made:
            flags = ["--devices", str(devices), "--run-dir", str(folder)]
            command = train._parse([*RUNS.get(name, PLAIN), *flags])
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
    *("callback_stops", "different_seeds", "separate_folders", "too_few_members"),
    *("recorded_data", "full_disk", "damaged_part", "gymnasium_continues"),
]


def test_two_and_four_processes(alone, tmp_path):
    """One test, since starting processes and compiling takes longer than all checks together."""
    folder = tmp_path / "two"
    told = together(2, 1, folder, *RUNS, *SCENARIOS)
    fit.resume(alone(CONTINUED, 2), epochs=3, verbose=0)
    for name in RUNS:
        assert [each[name] for each in told] == ["done", "done"]
        # Bit for bit: sums of two numbers do not depend on their order.
        assert rows(folder / name) == rows(alone(name, 2)), name
    assert len(rows(folder / CONTINUED)) == 6
    assert episodes(folder / "gym") == episodes(alone("gym", 2)) != []
    only_process_0_writes_into_the_run_folder(folder / "ppo")
    checkpoint_resumes_on_one_process(folder / "rrd", alone("rrd", 2))
    ends = ["stopped at 512, logged [256, 512]", "stopped at 512, logged []"]
    assert [each["callback_stops"] for each in told] == ends
    for scenario, text in REFUSED.items():
        for each in told:
            assert each[scenario].startswith("UserError") and text in each[scenario]
    # A full disk of one process stops all; the checkpoint before it stays.
    assert all("No space left on device" in each["full_disk"] for each in told)
    assert "process 1" in told[0]["full_disk"]
    assert [path.name for path in (folder / "full" / "checkpoints").iterdir()] == ["512"]
    # A checkpoint of which one part is damaged is skipped by all.
    assert all(each["damaged_part"].startswith("restored 512: ['checkpoint") for each in told)
    for name in ("one", "four/resharded"):
        shutil.copytree(folder / "ppo", tmp_path / name)
    told = together(4, 2, tmp_path / "four", "plain", "resharded", FAILS)
    for rank in (1, 2, 3):  # JAX would end them without a word of the run
        end = f"error: process 0 of 4 failed; process {rank} stops. Continue with: jaxrl.train"
        assert end in told[rank]["printed"]
    four_processes_differ_in_the_last_bits_only(tmp_path / "four" / "plain", alone("plain", 8))
    checkpoint_of_two_continues_on_one_and_four(
        tmp_path / "one", tmp_path / "four" / "resharded", told
    )


REFUSED = {
    "different_seeds": "Processes differ in --seed: process 0 has 0, process 1 has 1.",
    "separate_folders": "is not seen by process 1",
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


def four_processes_differ_in_the_last_bits_only(four, alone):
    """With more than two addends, the order of a sum is that of the network."""
    ours, theirs = rows(four), rows(alone)
    assert ours.keys() == theirs.keys()
    first = min(ours, key=lambda place: place[1])
    for name, value in theirs[first].items():
        assert ours[first][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def checkpoint_of_two_continues_on_one_and_four(one, four, told):
    """All restore the same state, and say that numbers will differ."""
    expected = continue_resharded(one, "--devices", "1")
    assert expected.startswith("1024 ") and "another number of devices" in expected
    assert [each["resharded"] for each in told] == [expected] * 4
    for run in (one, four):
        steps = [step for _, step in rows(run)]
        assert steps == [256, 512, 768, 1024, 1280, 1536]


LONG = [*PLAIN, "--epochs", "12", "--resume", "auto"]


def launched(folder):
    """Start two processes by the command for one machine."""
    command = [sys.executable, "-m", "jaxrl.launch", "--processes", "2", "--cpu-devices", "1"]
    return subprocess.Popen(
        [*command, "--", *LONG, "--run-dir", str(folder), "--distributed.heartbeat", "10"],
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


def test_same_command_goes_on_after_a_kill_and_after_sigterm(stack, tmp_path):
    """Rank 1 is killed, then rank 0 is asked to stop; the third start trains to the end."""
    rng, folder = np.random.default_rng(0), tmp_path / "run"
    for number, (rank, kill) in enumerate([(1, signal.SIGKILL), (0, signal.SIGTERM)]):
        process = launched(folder)
        stack.callback(end, process)
        wanted = len(rows(folder)) + int(rng.integers(3, 8))
        until = time.monotonic() + 120
        while len(rows(folder)) < wanted and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(ranks(process)[rank], kill)
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 128 + kill, output
        assert f"process {rank} of 2" in output or number == 1
    process = launched(folder)
    stack.callback(end, process)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    command = train._parse([*PLAIN, "--epochs", "12", "--devices", "2"])
    fit.fit(overrides.changed(command.config, {"run_dir": tmp_path / "alone"}), verbose=0)
    assert rows(folder) == rows(tmp_path / "alone")


def test_process_that_never_starts_is_a_clear_error():
    flags = ["--distributed.coordinator", "127.0.0.1:9", "--distributed.processes", "2"]
    command = [sys.executable, "-m", "jaxrl.train", *RUNS["ppo"], *flags]
    done = subprocess.run(
        [*command, "--distributed.process", "1", "--distributed.timeout", "2"],
        env=environment(1),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "Not all of 2 processes met" in done.stderr or "DEADLINE" in done.stderr
