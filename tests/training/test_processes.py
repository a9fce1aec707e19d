"""Runs in separate processes that are interrupted, killed and resumed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxrl import train
from jaxrl.loggers import run_dir as folders
from tests.helpers import tiny
from tools import kill_soak

pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("shared_programs", "no_plots")]
ROOT = Path(__file__).parent.parent.parent
LONG = ["--epochs", "20", "--ppo.schedule", "linear"]


def start(*arguments):
    environment = os.environ | {
        # No code is patched in these processes: they may cache and share traces.
        "JAXRL_CACHE_PROGRAMS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "jaxrl.train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def wait_for_rows(process, folder, number):
    """Wait until a run has logged `number` cycles."""
    path = Path(folder) / "metrics.jsonl"
    while process.poll() is None:
        if path.exists() and path.read_text().count("\n") >= number:
            return
        time.sleep(0.01)
    raise AssertionError(process.stdout.read())


def finish(process):
    output, _ = process.communicate(timeout=900)
    return output


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run in this process, without cached traces."""
    return tiny.run(tmp_path_factory.mktemp("processes") / "whole", *LONG)


def assert_equals_uninterrupted(path, uninterrupted):
    assert tiny.rows(path) == tiny.rows(uninterrupted)
    tiny.assert_same_policy(path, uninterrupted)


def test_interrupted_and_killed_run_resumes_exactly(uninterrupted, tmp_path):
    """SIGTERM saves the state; SIGKILL may come while a checkpoint is being written.

    SIGINT is sent by `test_resume_after_ctrl_c_equals_uninterrupted_run`.
    """
    path = tmp_path / "run with space"
    process = start(*tiny.flags(path, *LONG))
    wait_for_rows(process, path, 1)
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "finishing the running cycle" in output and "--resume" in output
    process = start("--resume", path)
    logged = len(tiny.rows(path))
    wait_for_rows(process, path, logged + 3)  # each epoch of two cycles saves
    time.sleep(random.Random(0).random() * 0.05)
    process.kill()
    process.communicate()
    process = start("--resume", path)
    output = finish(process)
    assert process.returncode == 0, output
    assert_equals_uninterrupted(path, uninterrupted)
    assert kill_soak.differences(uninterrupted, path) == []
    steps = [row["step"] for row in tiny.rows(path)]
    assert steps == sorted(set(steps))


def test_kill_soak_detects_differences(uninterrupted, tmp_path):
    path = shutil.copytree(uninterrupted, tmp_path / "run")
    rows = (path / "metrics.jsonl").read_text().splitlines()
    changed = rows[3].replace('"train/loss": ', '"train/loss": 1')
    (path / "metrics.jsonl").write_text("\n".join([*rows[:3], changed, *rows[4:-1]]))
    shutil.copy(path / "policies" / "best.npz", path / "policies" / "final.npz")
    found = kill_soak.differences(uninterrupted, path)
    assert found[0].startswith("row 3: ") and found[1] == "39 rows instead of 40"
    assert any(text.startswith("policies/final.npz: actor/") for text in found[2:])


def test_second_interrupt_exits_at_once(tmp_path):
    path = tmp_path / "run"
    # One cycle that lasts for minutes.
    process = start(*tiny.flags(path, "--iterations", "2000000", "--epochs", "1"))
    for line in process.stdout:
        if line.startswith("compiled in"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    began = time.monotonic()
    while process.poll() is None:  # Python handles the first only between bytecodes
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    process.communicate()
    assert process.returncode == 130
    assert time.monotonic() - began < 60


def test_locked_run_cannot_be_opened_again(uninterrupted, capsys):
    with folders.locked(uninterrupted):
        assert train.main(["--resume", str(uninterrupted)]) == 2
    assert "Another process is training" in capsys.readouterr().err
