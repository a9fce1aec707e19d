"""Signals that request a stop, and others that do not."""

import os
import signal
import time

import pytest

from jaxrl import train
from jaxrl.errors import UserError
from jaxrl.utils import progress, signals


def wait_for(stop, seconds=60.0):
    end = time.monotonic() + seconds
    while not stop and time.monotonic() < end:
        time.sleep(0.01)
    return stop.signal


def test_sigterm_requests_stop_and_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with signals.listening() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait_for(stop) == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_handlers_of_other_signals_still_run():
    received = []
    before = signal.signal(signal.SIGUSR1, lambda *_: received.append(1))
    try:
        with signals.listening() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_for(stop, 0.3)
            assert received and not stop
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX warns of it
def test_ends_of_forked_children_are_their_own():
    with signals.listening() as stop:
        child = os.fork()
        if not child:
            time.sleep(20)
            os._exit(0)
        time.sleep(0.2)  # until it runs Python
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not wait_for(stop, 0.3)


def test_training_that_only_starts_ends_at_once(monkeypatch):
    """As long as nothing is trained; a KeyboardInterrupt may be lost in a callback of JAX."""
    ended = []
    monkeypatch.setattr(signals, "_exit", lambda *given: ended.append(given))

    def start(processes):
        os.kill(os.getpid(), signal.SIGINT)
        end = time.monotonic() + 60.0
        while not ended and time.monotonic() < end:
            time.sleep(0.01)
        raise UserError("the process would be gone")

    monkeypatch.setattr(train, "_speed_up_start", start)
    for words in (["cartpole"], ["--resume", "runs/none"]):
        assert train.main(words) == 2
        assert ended == [(signal.SIGINT, "\nSIGINT: stopped while starting\n")]
        ended.clear()


def test_stages_of_commands_end_at_once(monkeypatch, capfd):
    ended = []
    monkeypatch.setattr(signals, "_exit", lambda *given: ended.append(given))
    with progress.stage("compiling"):
        os.kill(os.getpid(), signal.SIGINT)
        end = time.monotonic() + 60.0
        while not ended and time.monotonic() < end:
            time.sleep(0.01)
    assert ended == [(signal.SIGINT, "\nSIGINT: stopped while compiling\n")]
