"""Kill a training run at random times, resume it each time, and compare with an uninterrupted run.

Usage: python tools/kill_soak.py --kills 100 [--processes 2]

One run is trained without interruption. Then the same run is started again, killed by SIGKILL at a
random time (during imports, compilation, training, evaluation, a save or its report), resumed,
killed again, and so on until it finishes; then the next run is started, until all kills are done.
Every run must end with the same files: each row of metrics.jsonl without its times,
each evaluation, and each array of the best and the final policy, bit for bit. The exit status is 1
if anything differs, or if a run or a resume fails.

With --processes, several processes train together, and one of them is killed; each start is the
same command, with --resume auto.
"""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FLAGS = shlex.split(
    "cartpole --devices 1 --num-envs 8 --epochs 60 --cycles 2 --iterations 2 --eval.num-envs 4 "
    "--network.hidden 8 --network.critic-hidden 8 --ppo.rollout-length 8 --ppo.num-minibatches 2 "
    "--ppo.update-epochs 2 --ppo.schedule linear --task.episode-length 20"
)


class Failure(Exception):
    """A run failed, or its files differ from those of the uninterrupted run."""


def start(folder: Path, flags: list[str], processes: int = 1) -> subprocess.Popen:
    """Start the run of a folder, or resume it once its settings are written."""
    begun = (folder / "config.json").exists()
    words = ["--resume", str(folder)] if begun else [*flags, "--run-dir", str(folder)]
    module = ["jaxrl.train"]
    if processes > 1:
        module = f"jaxrl.launch --processes {processes} --cpu-devices 1 --".split()
        words = [*flags, "--devices", str(processes), "--run-dir", str(folder), "--resume", "auto"]
    environment = os.environ | {
        # Starts are quick when compiled and traced programs are cached.
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAXRL_CACHE_PROGRAMS": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", *module, *words]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, **output)


def kill(process: subprocess.Popen, chance: random.Random) -> None:
    """Kill a run, or one of its processes, after which the launcher ends the others."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    if children:
        os.kill(int(chance.choice(children)), signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def finish(process: subprocess.Popen) -> None:
    """Wait for a run to finish; raise Failure if it does not succeed."""
    output, _ = process.communicate()
    if process.returncode:
        raise Failure(f"a run ended with exit status {process.returncode}:\n{output}")


def interrupted(
    folder: Path,
    flags: list[str],
    kills: int,
    delay: Callable[[], float],
    processes: int = 1,
    chance: random.Random | None = None,
) -> list[float]:
    """Train in `folder`, killing the run up to `kills` times; return the time of each kill."""
    killed = []
    while len(killed) < kills:
        process, after = start(folder, flags, processes), delay()
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            kill(process, chance or random.Random())
            killed.append(after)
        else:
            finish(process)
            return killed
    finish(start(folder, flags, processes))
    return killed


def rows(folder: Path) -> list[dict[str, float]]:
    """Return the rows of a run's log without times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines
    ]


def arrays(file: Path) -> dict[str, Any]:
    """Return the arrays of a file as bytes."""
    with np.load(file, allow_pickle=False) as data:
        return {name: data[name].tobytes() for name in data.files if name != "policy.json"}


def differences(whole: Path, other: Path) -> list[str]:
    """Describe the differences between the files of two finished runs."""
    ours, theirs = rows(whole), rows(other)
    found = [
        f"row {i}: {a} != {b}" for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b
    ]
    if len(ours) != len(theirs):
        found.append(f"{len(theirs)} rows instead of {len(ours)}")
    for name in ("evaluations.npz", "policies/best.npz", "policies/final.npz"):
        if not ((whole / name).exists() or (other / name).exists()):
            continue  # a run without evaluations
        one, two = arrays(whole / name), arrays(other / name)
        found += [f"{name}: {k}" for k in one.keys() | two.keys() if one.get(k) != two.get(k)]
    return found


def soak(place: Path, kills: int, seed: int, processes: int = 1) -> None:
    """Train once without interruption, then repeatedly with kills, and compare."""
    chance = random.Random(seed)
    finish(start(place / "whole", FLAGS, processes))  # fills the caches
    began = time.monotonic()
    finish(start(place / "again", FLAGS, processes))
    longest = time.monotonic() - began
    print(f"a run takes {longest:.1f} s, {len(rows(place / 'whole'))} rows", flush=True)
    done = number = 0
    while done < kills:
        folder = place / f"run-{number}"
        delay = partial(chance.uniform, 0, 1.1 * longest)
        killed = interrupted(folder, FLAGS, kills - done, delay, processes, chance)
        done, number = done + len(killed), number + 1
        moments = " ".join(f"{moment:.2f}" for moment in killed)
        if found := differences(place / "whole", folder):
            raise Failure(f"{folder} differs after kills at {moments} s:\n" + "\n".join(found))
        print(f"{done} of {kills} kills: run {number} is identical (at {moments} s)", flush=True)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Kill and resume a run at random times.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kill-soak-"))
    try:
        soak(place, arguments.kills, arguments.seed, arguments.processes)
    except Failure as failure:
        print(f"FAILED: {failure}\nThe runs are in {place}")
        return 1
    print(f"passed: {arguments.kills} kills, every run bit-identical ({place} may be deleted)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
