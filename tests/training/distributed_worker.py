"""One of several processes that train together; run by test_distributed.py.

Usage: distributed_worker.py PORT PROCESSES PROCESS FOLDER SCENARIO ...
"""

import hashlib
import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl import train
from jaxrl.callbacks import CallbackAction
from jaxrl.checkpoint import array_io
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import overrides
from jaxrl.errors import UserError
from jaxrl.training import fit, resume, startup
from jaxrl.utils import processes
from tests.helpers import faster, recorded, sharing  # noqa: F401
from tests.training.distributed_runs import CONTINUED, PLAIN, RUNS

folder: Path
FAILS = "process_0_fails"  # after all scenarios
told: dict[str, str] = {}  # what each scenario ended with


def parsed(name: str, place: str) -> train.TrainArgs:
    devices = ["--devices", str(jax.device_count())]
    return train._parse([*RUNS.get(name, PLAIN), *devices, "--run-dir", str(folder / place)])


def trains(name: str) -> None:
    command = parsed(name, name)
    members = overrides.members(command.config, command.num_seeds)
    config = members if len(members) > 1 else members[0]
    result = fit.fit(config, verbose=0)
    assert result.folder == folder / name


def different_seeds() -> None:
    config = parsed("ppo", "seeds").config
    fit.fit(replace(config, seed=processes.index()), verbose=0)


def separate_folders() -> None:
    own = folder / f"disk-{processes.index()}"
    own.mkdir()
    startup.check_shared(own)


def too_few_members() -> None:
    config = replace(parsed("ppo", "members").config, devices=None)
    fit.fit([replace(config, seed=seed) for seed in range(3)], verbose=0)


def recorded_data() -> None:
    data = recorded.write_bandit(folder / f"data-{processes.index()}.hdf5", episodes=2)
    flags = ["rrd-offline", "--data.path", str(data), "--devices", "1"]
    startup.check_alike(fit.build(train._parse(flags).config))


def gymnasium_continues() -> None:
    fit.resume(folder / CONTINUED, epochs=3, verbose=0)


def resharded() -> None:
    """Continue the run of another number of processes, which the test has copied."""
    told["resharded"] = continue_resharded(folder / "resharded")


def continue_resharded(run: Path, *flags: str) -> str:
    """Continue a run on the devices that there are; return its step, state and warnings before."""
    command = [*PLAIN, "--epochs", "3", "--run-dir", str(run), *flags]
    config = train._parse(command).config
    with CheckpointManager(run / "checkpoints", read_only=True) as checkpoints:
        state, restored, warnings = resume.restore_state(fit.build(config), checkpoints)
    leaves = jax.tree.leaves(jax.tree.map(_numbers, processes.fetch(state)))
    digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()
    fit.resume_if_present([config], verbose=0)
    return f"{restored.step} {digest} {warnings}"


def _numbers(leaf) -> np.ndarray:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def callback_stops() -> None:
    """The callbacks of process 0 count; those of others are not called."""

    def stop(context):
        if processes.is_main() and context.cycle == 2:
            return CallbackAction(stop="enough", save=True)
        return None if processes.is_main() else False

    config = parsed("ppo", "stopped").config
    logged = []  # by a sink of the user's own, on process 0 as well
    result = fit.fit(config, [stop], sinks=[lambda step, row: logged.append(step)], verbose=0)
    told["callback_stops"] = f"stopped at {result.env_steps}, logged {logged}"


def full_disk() -> None:
    """The disk of process 1 is full at the second checkpoint."""
    save, calls = array_io._save_raw, []

    def full(path, tree):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, os.strerror(28))
        save(path, tree)

    array_io._save_raw = full
    try:
        fit.fit(parsed("ppo", "full").config, verbose=0)
    finally:
        array_io._save_raw = save


def damaged_part() -> None:
    """A checkpoint of which one part is damaged is skipped by all processes."""
    if processes.is_main():
        shutil.copytree(folder / "ppo", folder / "damaged")
    processes.gather("copied")
    newest = max((folder / "damaged" / "checkpoints").iterdir(), key=lambda path: int(path.name))
    if processes.index() == 1:
        part = next((newest / "process-1" / "arrays").glob("*.raw"))
        part.write_bytes(bytes(len(part.read_bytes())))
    processes.gather("damaged")
    program = fit.build(parsed("ppo", "none").config)
    with CheckpointManager(newest.parent) as checkpoints:
        _, restored, _ = resume.restore_state(program, checkpoints)
    told["damaged_part"] = f"restored {restored.step}: {restored.warnings}"


def main() -> None:
    port, number, process, place, *scenarios = sys.argv[1:]
    global folder
    folder = Path(place)
    processes.start(f"127.0.0.1:{port}", int(number), int(process), heartbeat=20, timeout=60)
    assert jax.process_count() == int(number)
    patch = pytest.MonkeyPatch()
    sharing.share_programs(patch)
    sharing.leave_out_plots(patch)
    for name in filter(FAILS.__ne__, scenarios):
        try:
            globals()[name]() if name in globals() else trains(name)
        except (UserError, Exception) as error:
            told[name] = f"{type(error).__name__}: {error}"
        told.setdefault(name, "done")
    (folder / f"told-{process}.json").write_text(json.dumps(told))
    if FAILS in scenarios:
        processes.how_to_continue = "jaxrl.train --resume RUN"
        if processes.is_main():
            processes.leave(3, "out of order")
        time.sleep(60)  # until the others are ended
    processes.finish()


if __name__ == "__main__":
    main()
