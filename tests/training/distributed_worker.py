"""Processes that train together; run by test_distributed.py.

Usage: distributed_worker.py PROCESSES DEVICES FOLDER START SCENARIO ...

START is "flags", "Slurm" or "MPI": how they find each other. Each prints to FOLDER/printed-RANK,
and writes the results of its scenarios to FOLDER/results-RANK.json; their statuses are printed.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src import cache_key

from jaxrl import programs, train
from jaxrl.callbacks import CallbackAction
from jaxrl.checkpoint import array_io
from jaxrl.checkpoint.manager import CheckpointManager
from jaxrl.config import distributed, overrides
from jaxrl.errors import UserError
from jaxrl.training import cycle, fit, resume, startup
from jaxrl.utils import processes, sharding
from tests.helpers import recorded, sharing
from tests.training import forked
from tests.training.distributed_runs import CONTINUED, LAYOUTS, PLAIN, RUNS

folder: Path
FAILS = "process_0_fails"  # after all scenarios
DIFFER = "commands_differ"  # as well
FROM = "from-"  # continue the run in this folder, a copy that the test has made
results: dict[str, object] = {}  # what each scenario ended with


def parsed(name: str, place: str) -> train.TrainArgs:
    devices = ["--devices", str(jax.device_count())]
    flags = (RUNS | LAYOUTS).get(name, PLAIN)
    return train._parse([*flags, *devices, "--run-dir", str(folder / place)])


def trains(name: str) -> None:
    command = parsed(name, name)
    members = overrides.members(command.config, command.num_seeds)
    config = members if len(members) > 1 else members[0]
    result = fit.fit(config, verbose=0)
    assert result.folder == folder / name


def separate_folders() -> None:
    own = folder / f"disk-{processes.index()}"
    own.mkdir()
    startup._VISIBLE = 0.2
    startup.check_shared(own)


def too_few_members() -> None:
    config = replace(parsed("ppo", "members").config, devices=None)
    fit.fit([replace(config, seed=seed) for seed in range(3)], verbose=0)


def recorded_data() -> None:
    data = recorded.write_bandit(folder / f"data-{processes.index()}.hdf5", episodes=2)
    flags = ["rrd-offline", "--data.path", str(data), "--devices", "1"]
    startup.check_alike(programs.build(train._parse(flags).config))


def gymnasium_continues() -> None:
    fit.resume(folder / CONTINUED, epochs=3, verbose=0)


def continues() -> None:
    """Train in one go, and stopped after three cycles and continued."""

    def stop(context):
        return CallbackAction(stop="enough", save=True) if context.cycle == 3 else None

    fit.fit(parsed("plain-ppo", "stopped").config, [stop], verbose=0)
    fit.resume(folder / "stopped", verbose=0)


def continue_resharded(run: Path, *flags: str) -> tuple[int, str, list[str]]:
    """Continue a run for an epoch on other devices; return its step, state and warnings before."""
    epochs = 1 + max(int(path.name) for path in (run / "checkpoints").iterdir()) // 512
    command = [*PLAIN, "--epochs", str(epochs), "--run-dir", str(run), *flags]
    config = train._parse(command).config
    processes.gather("looked")  # before anyone continues
    with CheckpointManager(run / "checkpoints", read_only=True) as checkpoints:
        state, restored, warnings = resume.restore_state(programs.build(config), checkpoints)
    leaves = jax.tree.leaves(jax.tree.map(_numbers, processes.fetch(state)))
    digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()
    fit.resume_if_present([config], verbose=0)
    return restored.step, digest, warnings


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
    results["callback_stops"] = f"stopped at {result.env_steps}, logged {logged}"


def sigterm_to_0() -> None:
    results["sigterm_to_0"] = _stopped("sigterm_to_0", 0, signal.SIGTERM)


def sigint_to_1() -> None:
    results["sigint_to_1"] = _stopped("sigint_to_1", 1, signal.SIGINT)


def _stopped(name: str, rank: int, number: signal.Signals) -> str:
    """One process gets a signal at the end of its first cycle; return what stopped the run."""
    end_of_cycle = cycle.log_and_save

    def signalled(*arguments) -> None:
        end_of_cycle(*arguments)
        cycle.log_and_save = end_of_cycle
        if processes.index() == rank:
            signal.raise_signal(number)
            time.sleep(0.5)  # a thread hears it

    cycle.log_and_save = signalled
    try:
        result = fit.fit(parsed("ppo", name).config, verbose=0)
    finally:
        cycle.log_and_save = end_of_cycle
    saved = sorted(path.name for path in (folder / name / "checkpoints").iterdir())
    return f"signal {result.stopped_by} at {result.env_steps}, saved {saved}"


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
    program, read = programs.build(parsed("ppo", "none").config), []
    read_arrays = array_io.read_arrays

    def recording(place, leaves):
        read.append(str(place.parent.relative_to(newest.parent)))
        return read_arrays(place, leaves)

    array_io.read_arrays = recording
    with CheckpointManager(newest.parent) as checkpoints:
        _, restored, _ = resume.restore_state(program, checkpoints)
    array_io.read_arrays = read_arrays
    results["damaged_part"] = f"restored {restored.step}: {restored.warnings}"
    results["parts_read"] = sorted(read)


def no_temporary_folder(*_, **__):
    raise OSError(28, os.strerror(28))


def sums() -> None:
    """Tell the largest error of a sum over all devices, in units of rounding its addends."""
    mesh = sharding.make_mesh()
    addends = np.random.default_rng(0).normal(size=(mesh.size, 1000)).astype(np.float32)
    add = jax.jit(lambda x: x.sum(0), out_shardings=sharding.replicated(mesh))
    total = processes.fetch(add(sharding.put(addends, sharding.rows(mesh))))
    unit = np.finfo(np.float32).eps / 2 * np.abs(addends).sum(0)
    results["sums"] = float(np.max(np.abs(total - addends.sum(0, dtype=np.float64)) / unit))


def compile_once_for_all() -> None:
    """Let process 0 compile for all, which are alike: most of the time is spent compiling.

    JAX does so where the keys of its cache are equal. On CPUs they are not, since the topology that
    a process describes begins with itself.
    """
    jax.config.update("jax_share_binary_between_hosts", True)
    cache_key._hash_accelerator_config = cache_key._hash_devices


def variables(start: str, rank: int, number: int, port: int) -> dict[str, object]:
    """Return what a scheduler sets; the port follows from the number of its job."""
    job = port - 61440
    if start == "Slurm":
        return {
            "SLURM_JOB_ID": job,
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": number,
            "SLURM_STEP_NUM_TASKS": number,
            "SLURM_PROCID": rank,
            "SLURM_LOCALID": rank,
        }
    return {
        "OMPI_MCA_orte_hnp_uri": f"{4096 * job}.0;tcp://127.0.0.1:1",
        "OMPI_COMM_WORLD_SIZE": number,
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
    }


def join(rank: int, number: int, port: int, start: str) -> None:
    """Find the other processes, as `jaxrl.train` does."""
    words = ["--distributed.heartbeat", "20", "--distributed.timeout", "60"]
    if start == "flags":
        places = {"coordinator": f"127.0.0.1:{port}", "processes": number, "process": rank}
        words += [f"--distributed.{name}={value}" for name, value in places.items()]
    else:
        made = variables(start, rank, number, port)
        os.environ.update({name: str(value) for name, value in made.items()})
    found, _ = distributed.parse(words)
    assert found is not None
    train._join(found)


def work(rank: int, number: int, port: int, start: str, scenarios: list[str]) -> int:
    """Run the scenarios in one of the processes."""
    join(rank, number, port, start)
    assert jax.process_count() == number and jax.process_index() == rank
    patch = pytest.MonkeyPatch()
    if rank:  # they write into the run folder alone, and only their part of checkpoints
        patch.setattr(tempfile, "mkdtemp", no_temporary_folder)
    sharing.share_programs(patch)
    sharing.leave_out_plots(patch)
    for name in scenarios:
        if name in (FAILS, DIFFER):
            continue
        try:
            if name.startswith(FROM):
                results[name] = continue_resharded(folder / name)
            else:
                globals()[name]() if name in globals() else trains(name)
        except (UserError, Exception) as error:
            results[name] = f"{type(error).__name__}: {error}"
        results.setdefault(name, "done")
    (folder / f"results-{rank}.json").write_text(json.dumps(results))
    if FAILS in scenarios:
        processes.resume_command = "jaxrl.train --resume RUN"
        if processes.is_main():
            processes.leave(3, "out of order")
        time.sleep(60)  # until the others are ended
    if DIFFER in scenarios:
        place = ["--run-dir", str(folder / "never"), "--distributed", "off"]  # they are joined
        return train.main([*PLAIN, *place, "--devices", str(number), "--seed", str(rank)])
    processes.finish()
    return 0


def main() -> None:
    number, devices, place, start, *scenarios = sys.argv[1:]
    global folder
    folder = Path(place)
    jax.config.update("jax_num_cpu_devices", int(devices))
    forked.prepare(PLAIN)
    port = forked.free_port(from_port=61440)  # schedulers use those from there on
    compile_once_for_all()

    def rank(index: int) -> int:
        run = lambda: work(index, int(number), port, start, scenarios)  # noqa: E731
        return forked.fork(folder / f"printed-{index}", run)

    started = [rank(index) for index in range(int(number))]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
