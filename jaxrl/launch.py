"""Several processes on this machine: `python -m jaxrl.launch --processes 4 -- PRESET ...`.

Each process runs `jaxrl.train` with the arguments after `--`, and all of them train one run. The
console is that of process 0; lines that others print are prefixed with their number. Signals are
passed on, and when one process fails the others are ended.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jaxrl.config.distributed import COORDINATOR, LAUNCHER, PROCESS, PROCESSES
from jaxrl.config.metadata import setting
from jaxrl.errors import UserError, exit_status
from jaxrl.utils import command_line
from jaxrl.utils.formatting import plural

_GRACE = 10.0  # seconds for the others to end after one has stopped or failed
_GRACE_AFTER_KILL = 2.0  # they cannot go on, and have nothing to save
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEV = Path("/dev")
_NOISE = b"[Gloo] Rank "  # printed by every process for every connection


@dataclass(frozen=True)
class LaunchArgs:
    """Train one run on several processes of this machine."""

    processes: int = setting(2, "Number of processes.")
    cpu_devices: int | None = setting(
        None, "CPU devices of each process; without it, each uses the devices that JAX finds."
    )
    port: int | None = setting(None, "Port of process 0 on this machine; a free one if not given.")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    return exit_status(lambda: _launch(*_parsed(words)))


def _parsed(words: list[str]) -> tuple[LaunchArgs, list[str]]:
    """Split the arguments at `--`."""
    own, train = (
        (words[: words.index("--")], words[words.index("--") + 1 :])
        if "--" in words
        else (words, [])
    )
    args = command_line.parse(LaunchArgs, own, "launch")
    for name in ("processes", "cpu_devices"):
        number = getattr(args, name)
        if number is not None and number < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1, not {number}.")
    if args.cpu_devices is None and 0 < _gpus() < args.processes:
        raise UserError(
            f"--processes {args.processes}: this machine has {plural(_gpus(), 'GPU')}, and every "
            "process needs its own. Use fewer, or --cpu-devices 1 for the CPU."
        )
    if not train:
        raise UserError(
            f"Give what to train after --, as {command_line.prog('launch')} --processes 4 -- ant."
        )
    return args, train


def _launch(args: LaunchArgs, train: list[str]) -> int:
    coordinator = f"127.0.0.1:{args.port or _free_port()}"
    started: list[subprocess.Popen] = []
    printers: list[threading.Thread] = []
    with _signals_passed_to(started):
        try:
            for rank in range(args.processes):
                started.append(_start(rank, args, coordinator, train))
            for rank, process in enumerate(started):
                if lines := process.stdout:
                    printers.append(threading.Thread(target=_prefix, args=(rank, lines)))
                    printers[-1].start()
            return _wait(started)
        finally:
            _end(started)
            for printer in printers:
                printer.join()


def _gpus() -> int:
    """Return the number of NVIDIA GPUs; 0 if JAX_PLATFORMS names the CPU."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return 0
    return len(list(_DEV.glob("nvidia[0-9]*")))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(rank: int, args: LaunchArgs, coordinator: str, train: list[str]) -> subprocess.Popen:
    variables = {COORDINATOR: coordinator, PROCESSES: str(args.processes), PROCESS: str(rank)}
    cpus = "" if args.cpu_devices is None else f" --cpu-devices {args.cpu_devices}"
    variables[LAUNCHER] = f"{command_line.prog('launch')} --processes {args.processes}{cpus} --"
    if args.cpu_devices is not None:
        variables["JAX_PLATFORMS"] = "cpu"
        variables["JAX_NUM_CPU_DEVICES"] = str(args.cpu_devices)
    elif gpus := _gpus():
        per_process = gpus // args.processes
        own = range(rank * per_process, (rank + 1) * per_process)
        variables["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, own))
    return subprocess.Popen(
        [sys.executable, "-m", "jaxrl.train", *train],
        env=os.environ | variables,
        stdout=subprocess.PIPE if rank else None,
        stderr=subprocess.STDOUT if rank else None,
        start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
        preexec_fn=_stop_with_launcher if sys.platform == "linux" else None,
    )


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _stop_with_launcher() -> None:
    """Let the kernel send SIGTERM to a process when the launcher has died, even by SIGKILL."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prefix(rank: int, lines: IO[bytes]) -> None:
    """Print what a process prints, with its number."""
    with lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(2, f"[{rank}] ".encode() + line)


def _wait(started: list[subprocess.Popen]) -> int:
    """Wait for all processes; return the first status that is not 0."""
    while True:
        states = [process.poll() for process in started]
        failed = [(rank, status) for rank, status in enumerate(states) if status]
        if failed:
            # A process that was killed is the cause; those that noticed may be found first.
            rank, status = min(failed, key=lambda each: each[1] > 0)
            # Processes that were stopped together end together: they have saved the run.
            _end(started, _GRACE_AFTER_KILL if status < 0 else _GRACE)
            what = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            print(f"jaxrl.launch: process {rank} of {len(started)} {what}", file=sys.stderr)
            return status if status > 0 else 128 - status
        if all(status == 0 for status in states):
            return 0
        time.sleep(0.05)


def _end(started: list[subprocess.Popen], grace: float = _GRACE) -> None:
    """Give processes that still run a little time, then kill them."""
    until = time.monotonic() + grace
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(until - time.monotonic(), 0.0))
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _signals_passed_to(started: list[subprocess.Popen]) -> Iterator[None]:
    def pass_on(number: int, frame: object) -> None:
        del frame
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
