"""Kill ranks of a run at random moments, and start them again by the same command.

Usage: kill_ranks.py FOLDER KILLS SEED [TRAIN_FLAG ...]; run by test_distributed.py.

It trains FOLDER/whole undisturbed, then FOLDER/run-0, FOLDER/run-1 and so on until all kills
are made, and prints a line of JSON for each kill.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from jaxrl import train
from jaxrl.config import distributed
from tests.helpers import sharing
from tests.training import forked

RANKS = 2
MET = "training together"  # printed by process 0 when all are connected


class Start:
    """The processes of one start of a run."""

    def __init__(self, folder: Path, flags: list[str]) -> None:
        os.environ[distributed.COORDINATOR] = f"127.0.0.1:{forked.free_port()}"
        os.environ[distributed.PROCESSES] = str(RANKS)
        command = [*flags, "--run-dir", str(folder), "--resume", "auto"]
        self.logs = [folder.with_name(f"{folder.name}-{rank}.log") for rank in range(RANKS)]
        self.running = {rank: _fork(rank, self.logs[rank], command) for rank in range(RANKS)}
        self.statuses: dict[int, int] = {}

    def wait(self, seconds: float) -> bool:
        """Wait for all ranks; tell whether they have ended."""
        until = time.monotonic() + seconds
        while self.running and time.monotonic() < until:
            for rank, pid in list(self.running.items()):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    del self.running[rank]
                    self.statuses[rank] = os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        return not self.running

    def kill(self, *ranks: int) -> None:
        for rank in ranks:
            if rank in self.running:
                os.kill(self.running[rank], signal.SIGKILL)

    def printed(self) -> list[str]:
        return [log.read_text(errors="replace") for log in self.logs]


def _fork(rank: int, log: Path, command: list[str]) -> int:
    """Run `jaxrl.train` in a new process; return its id."""

    def work() -> int:
        os.environ[distributed.PROCESS] = str(rank)
        return train.main(command)

    return forked.fork(log, work)


def train_to_end(folder: Path, flags: list[str]) -> float:
    """Train undisturbed; return the seconds that it took."""
    began, start = time.monotonic(), Start(folder, flags)
    ended = start.wait(300)
    start.kill(*range(RANKS))
    if not ended or any(start.statuses.values()):
        raise RuntimeError("\n".join(start.printed()))
    return time.monotonic() - began


def kill(folder: Path, flags: list[str], rank: int, moment: float) -> str:
    """Kill a rank at a moment; return what happened, "" if the run had ended."""
    start = Start(folder, flags)
    if start.wait(moment):
        if any(start.statuses.values()):
            raise RuntimeError("\n".join(start.printed()))
        return ""
    start.kill(rank)
    # Those that still wait for a rank that was killed would do so for minutes.
    met = MET in start.printed()[0]
    start.wait(60 if met else 0)  # they need 20 seconds at most, unless the machine is busy
    forced = sorted(start.running) if met else []
    start.kill(*range(RANKS))
    start.wait(20)
    if start.statuses[rank] == 0:
        return ""
    statuses = [start.statuses[each] for each in range(RANKS)]
    record = {"rank": rank, "moment": moment, "met": met, "forced": forced, "statuses": statuses}
    return json.dumps(record | {"printed": start.printed()})


def main() -> None:
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    flags, chance = sys.argv[4:], random.Random(seed)
    forked.prepare(flags)
    sharing.leave_out_plots(pytest.MonkeyPatch())
    train_to_end(folder / "compiled", flags)
    longest = train_to_end(folder / "whole", flags)
    run = done = 0
    while done < kills:
        rank, moment = chance.randrange(RANKS), chance.uniform(0, longest)
        if record := kill(folder / f"run-{run}", flags, rank, moment):
            print(record, flush=True)
            done += 1
        else:
            run += 1
    train_to_end(folder / f"run-{run}", flags)


if __name__ == "__main__":
    main()
