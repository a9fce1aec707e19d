"""How processes end together, and what one does when another is lost meanwhile."""

import signal
import subprocess
import sys

import pytest

from tests.training.forked import free_port

pytestmark = pytest.mark.multiprocess
RANKS = range(3)
NOBODY = -1
WORK = """
import os, signal, sys, time
from jaxrl.utils import processes
port, rank, lost = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
processes.start(f"127.0.0.1:{port}", int(sys.argv[4]), rank)
if rank == lost:
    time.sleep(1)  # the others are waiting for it
    os.kill(os.getpid(), signal.SIGKILL)
print("has saved everything")
processes.finish(7)
sys.exit(7)
"""


@pytest.mark.parametrize("lost", [0, 2, NOBODY])
def test_the_end_does_not_wait_for_a_lost_process(lost):
    """A barrier of JAX's service would wait for it until its timeout, 20 minutes."""
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(port), str(rank), str(lost), str(len(RANKS))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in RANKS
    ]
    try:
        printed = [process.communicate(timeout=60)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for rank, process in enumerate(started):
        assert process.returncode == (-signal.SIGKILL if rank == lost else 7)
        assert printed[rank] == ("" if rank == lost else "has saved everything\n")
