"""Ranks of a run as forks of a process that has imported everything and used no device.

A start of Python is mostly imports, so several ranks, and several starts, share them.
"""

import contextlib
import os
import random
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot  # noqa: F401
import orbax.checkpoint  # noqa: F401
from jax._src import xla_bridge

from jaxrl import train
from jaxrl.envs import brax_patches
from jaxrl.training import fit  # noqa: F401
from tests.helpers import faster  # noqa: F401


def prepare(flags: list[str]) -> None:
    """Do what all forks share; a backend would not survive a fork."""
    brax_patches.import_brax()
    train._parse(flags)  # the parser caches what it reads of the settings
    assert not xla_bridge.backends_are_initialized()


def free_port(from_port: int = 0) -> int:
    """Return a free port, of all or from a number on."""
    with socket.socket() as probe:
        while True:
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", from_port and random.randrange(from_port, 65536)))
                return probe.getsockname()[1]


def fork(log: Path, work: Callable[[], int]) -> int:
    """Run a function in a new process, which prints to a file; return the process's id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
