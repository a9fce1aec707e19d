"""Processes learn at once that another one has ended."""

import errno
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from jaxrl.utils import liveness

HOST = "127.0.0.1"


@pytest.fixture
def hub():
    """Process 0's connections, and a queue of who has ended."""
    ended = queue.Queue()
    return liveness.Hub(lambda *who: ended.put(who), 60), ended


def connected(hub, number):
    """Wait until all others have greeted."""
    until = time.monotonic() + 10
    while len(hub._others) < number and time.monotonic() < until:
        time.sleep(0.01)
    assert len(hub._others) == number


def spoke_process(address):
    """Start process 2; it ends when its input does, and tells why if there is any."""
    code = (
        "import sys; from jaxrl.utils import liveness; "
        f"spoke = liveness.Spoke({HOST!r}, {address!r}, 2, print, 60); "
        "why = sys.stdin.read(); why and spoke.notify(why, 1)"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)


def test_main_learns_which_process_was_killed(hub):
    main, ended = hub
    process = spoke_process(main.address)
    connected(main, 1)
    process.kill()
    assert ended.get(timeout=10) == (2, "")
    process.communicate()


def test_failure_reaches_main_with_its_reason(hub):
    main, ended = hub
    process = spoke_process(main.address)
    connected(main, 1)
    process.communicate("process 2 of 3 failed")
    assert ended.get(timeout=10) == (2, "process 2 of 3 failed")


def test_main_tells_the_others_and_waits_until_they_have_ended(hub):
    main, _ = hub
    received = queue.Queue()
    spokes = [
        liveness.Spoke(HOST, main.address, rank, lambda *who: received.put(who), 60)
        for rank in (1, 2)
    ]
    connected(main, 2)
    began = time.monotonic()
    main.notify("the disk is full", timeout=0.3)
    assert time.monotonic() - began >= 0.3  # both are still there
    assert [received.get(timeout=10) for _ in spokes] == [(0, "the disk is full")] * 2
    for spoke in spokes:
        spoke._main.close()
    began = time.monotonic()
    main.notify("the disk is full", timeout=10)
    assert time.monotonic() - began < 5


def test_strangers_are_not_processes_of_the_run(hub):
    main, ended = hub
    port = int(main.address.split()[0])
    for greeting in (b"", b"GET / HTTP/1.1\r\n", b"0123456789abcdef 1\n"):
        with socket.create_connection((HOST, port)) as stranger:
            stranger.sendall(greeting)
    spoke_process(main.address).communicate("a reason")
    assert ended.get(timeout=10) == (2, "a reason")
    assert ended.empty() and not main._others


def test_connection_that_fails_does_not_end_those_of_others(hub, monkeypatch):
    main, ended = hub
    keep_alive, failed = liveness._kept_alive, []

    def fail_once(connection, heartbeat):
        if threading.current_thread() is threading.main_thread() or failed:
            return keep_alive(connection, heartbeat)
        failed.append(connection)
        raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    monkeypatch.setattr(liveness, "_kept_alive", fail_once)
    received = queue.Queue()
    dropped = liveness.Spoke(HOST, main.address, 1, lambda *who: received.put(who), 60)
    assert received.get(timeout=10) == (0, "")
    spoke = liveness.Spoke(HOST, main.address, 2, lambda *who: received.put(who), 60)
    connected(main, 1)
    spoke.notify("enough", 1)
    assert failed and ended.get(timeout=10) == (2, "enough")
    for each in (dropped, spoke):
        each._main.close()


def test_files_may_be_opened_for_thousands_of_processes(hub):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == resource.RLIM_INFINITY or soft >= min(hard, liveness._DESCRIPTORS)


def test_abort_leaves_time_to_say_why():
    code = (
        "import ctypes, os, threading, time; from jaxrl.utils import liveness; "
        "liveness.delay_aborts(); "
        "threading.Thread(target=ctypes.CDLL(None).abort, daemon=True).start(); "
        "time.sleep(0.5); print('why', flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "why\n")


def test_abort_still_ends_the_process():
    code = (
        "import ctypes, signal; from jaxrl.utils import liveness; "
        "liveness.delay_aborts(); ctypes.CDLL(None).abort()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
    assert done.returncode == -signal.SIGABRT
