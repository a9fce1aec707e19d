"""The benchmarks run, in their quick form, and leave what they promise; nothing is timed here."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import peers, report

ROOT = Path(__file__).parent.parent


def run(out, *words, keep=False):
    """Run a benchmark in a process of its own, with one device; return its rows.

    Keeping traced programs takes time, and pays only where one process follows another.
    """
    env = os.environ | {"JAX_PLATFORMS": "cpu", "JAXRL_KEEP_PROGRAMS": str(int(keep))}
    env["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    env["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".cache" / "jax")
    env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"  # the next process may need it
    command = [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:], "--quick"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    name = "-".join(words)
    picture = (out / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 5000
    data = json.loads((out / f"{name}.json").read_text())
    assert data["command"] == f"python -m benchmarks.{' '.join(words)} --quick"
    assert data["machine"]["commit"] and data["machine"]["versions"]["jax"]
    assert report.table(data["rows"]) in done.stdout
    assert str(out) not in json.dumps(data)
    return data["rows"]


@pytest.mark.slow
def test_throughput(tmp_path):
    (row,) = run(tmp_path, "throughput")
    assert row["train steps/s"] < row["rollout steps/s"]
    assert row["train / raw"] == pytest.approx(row["train steps/s"] / row["raw steps/s"])


@pytest.mark.slow
def test_scaling(tmp_path):
    few, many = run(tmp_path, "scaling")
    assert many["environments"] == 2 * few["environments"]
    assert many["peak GiB"] > few["peak GiB"] > 0


@pytest.mark.slow
def test_overlap(tmp_path):
    alone, together = run(tmp_path, "overlap")
    assert together["environments"] == 2 * alone["environments"]
    assert together["gain"] == pytest.approx(together["steps/s"] / alone["steps/s"])


@pytest.mark.slow
def test_populations(tmp_path):
    together, apart = run(tmp_path, "populations", "cartpole")
    assert (together["how"], apart["how"]) == ("one program", "one after another")
    assert together["seeds"] == apart["seeds"] == 2
    assert together["return (IQM)"] == pytest.approx(apart["return (IQM)"], rel=0.1)
    assert together["times faster"] == pytest.approx(apart["seconds"] / together["seconds"])
    assert together["device MiB"] > 1 and together["training, s"] < together["seconds"]


@pytest.mark.slow
def test_minibatches(tmp_path):
    few, many = run(tmp_path, "minibatches")
    assert many["steps per minibatch"] * 2 == few["steps per minibatch"]
    assert many["return at the end"] > 0 and many["million agent steps"] > 0


@pytest.mark.slow
def test_decomposition(tmp_path):
    (row,) = run(tmp_path, "decomposition")
    assert row["task"] == "rrd-quick" and row["seeds"] == 1
    assert {"dense", "episodic", "rrd", "score"} <= row.keys()


@pytest.mark.slow
def test_off_policy_beside_brax(tmp_path):
    ours, theirs = run(tmp_path, "off_policy")
    assert ours["gradient steps/s"] == pytest.approx(ours["steps/s"] / 8)
    assert ours["times brax"] * theirs["gradient steps/s"] == pytest.approx(
        ours["gradient steps/s"]
    )


@pytest.mark.slow
def test_time_to_return(tmp_path):
    cold, warm = run(tmp_path, "time_to_return", keep=True)
    for row in (cold, warm):
        assert row["return then"] >= row["return"]
        assert row["first log row, s"] <= row["reached after, s"]
    # Nothing is timed in tests, but what tracing and compiling again would cost is no trifle.
    assert warm["first log row, s"] < cold["first log row, s"]


@pytest.mark.slow
def test_beside_brax(tmp_path):
    ours, theirs = run(tmp_path, "peers", "brax")
    assert (ours["system"], theirs["system"]) == ("jaxrl", "brax")
    assert ours["steps/s"] > 0 and theirs["steps/s"] > 0


@pytest.mark.slow
@pytest.mark.skipif(
    not importlib.util.find_spec("stable_baselines3"), reason="needs the extra jaxrl[peers]"
)
def test_beside_stable_baselines3(tmp_path):
    ours, theirs = run(tmp_path, "peers", "sb3")
    assert theirs["million steps"] < ours["million steps"]


def test_first_time_a_return_is_reached():
    run = [{"seconds": 1.0, "return": 5.0}, {"seconds": 2.0, "return": 9.0}]
    assert peers.first_time(run, 5.0) == 1.0
    assert peers.first_time(run, 6.0) == 2.0
    assert peers.first_time(run, 10.0) is None


def test_table_has_a_column_for_everything():
    rows = [{"a": 1234567, "b": 0.12345}, {"a": None, "c": "word"}]
    assert report.table(rows).splitlines() == [
        "| a | b | c |",
        "|---|---|---|",
        "| 1,234,567 | 0.123 | - |",
        "| - | - | word |",
    ]
